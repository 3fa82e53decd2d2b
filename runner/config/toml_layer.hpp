// The tables of a TOML file or an override as a layer of located values.
#pragma once
#include <vector>

#include "runner/config/key_table.hpp"
#include "runner/config/toml_source.hpp"
#include "runner/config/translation.hpp"

namespace runner {

class TomlLayer {
 public:
  /// `names`: of other tools, see find_foreign_name(). Mistakes go to `diagnostics`: unknown names, unset variables.
  TomlLayer(const ForeignNames& names, const Translation& translation, std::vector<Diagnostic>& diagnostics)
      : names_(names), translation_(translation), diagnostics_(diagnostics) {}

  /// Expands ${env:NAME}. Names of other tools stay as they are, those outside the sections as ".name". `folder`: relative paths in
  /// the values are resolved against it.
  Layer read(const toml::table& table, const TomlSource& source, const fs::path& folder);

 private:
  void read_section(const Section& section, const toml::table& table, const TomlSource& source, const fs::path& folder,
                    Layer& layer);
  bool translated_at_top(const std::string& name, const toml::node& value) const;
  nlohmann::json expand(nlohmann::json value, const Origin& place, const std::string& section);
  std::string expand(const std::string& text, const Origin& place, const std::string& section);
  void problem(const Origin& place, const std::string& code, const std::string& message, const std::string& section);

  const ForeignNames& names_;
  const Translation& translation_;
  std::vector<Diagnostic>& diagnostics_;
};

/// The TOML of the override `source.name`, "KEY=VALUE". A bare word or a date is read as a string, and so is every word if the key
/// takes strings. nullopt after a mistake.
std::optional<toml::table> parse_override(const TomlSource& source, std::vector<Diagnostic>& diagnostics);

}  // namespace runner
