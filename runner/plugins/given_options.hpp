// The options of a recipe as plug-ins read them.
#pragma once
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "runner/plugins/options.hpp"

namespace runner {

/// `values`: {name: value}; `key`: of the recipe, for messages. Throws Error(usage) for a value of another type than options have.
plugin::Options plugin_options(const nlohmann::json& values, const std::string& key);

/// Throws Error(usage) for options that nobody has asked for.
void check_asked(const plugin::Options& options, const std::string& key);

/// The options that the parts in [plugins] have asked for. The parts share plugins.options, so an option is a mistake only if none of
/// them has asked for it.
class AskedOptions {
 public:
  void add(const std::set<std::string>& names) { names_.insert(names.begin(), names.end()); }
  const std::set<std::string>& names() const { return names_; }
  /// `given`: {name: value}; `key`: of the recipe, for messages. Throws Error(usage) for an option that no part has asked for.
  void check(const nlohmann::json& given, const std::string& key) const;

 private:
  std::set<std::string> names_;
};

}  // namespace runner
