// The options that a recipe gives to plug-ins: model.options to a model, plugins.options to the parts in [plugins]. Part of both
// interfaces; `cmake --install` puts it into include/runner/plugins/.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace runner::plugin {

/// Values by name. A value of another type raises std::invalid_argument. The run does not start if an option was given that no plug-in has
/// asked for.
class Options {
 public:
  using Value = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                             std::vector<std::string>>;
  explicit Options(std::map<std::string, Value> values) : values_(std::move(values)) {}

  int64_t integer(const std::string& name, int64_t otherwise) const { return get(name, otherwise, "an integer"); }
  bool flag(const std::string& name, bool otherwise) const { return get(name, otherwise, "true or false"); }
  std::string text(const std::string& name, const std::string& otherwise) const {
    return get(name, otherwise, "a string");
  }
  std::vector<int64_t> integers(const std::string& name, const std::vector<int64_t>& otherwise) const {
    return get(name, otherwise, "a list of integers");
  }
  double number(const std::string& name, double otherwise) const {
    const auto found = values_.find(name);
    if (found != values_.end() && std::holds_alternative<int64_t>(found->second))
      return asked_.insert(name), static_cast<double>(std::get<int64_t>(found->second));
    return get(name, otherwise, "a number");
  }
  const std::map<std::string, Value>& values() const { return values_; }
  /// The names that the plug-in has asked for.
  const std::set<std::string>& asked() const { return asked_; }

 private:
  template <typename T>
  T get(const std::string& name, const T& otherwise, const char* wanted) const {
    asked_.insert(name);
    const auto found = values_.find(name);
    if (found == values_.end()) return otherwise;
    if (const auto* value = std::get_if<T>(&found->second)) return *value;
    throw std::invalid_argument("the option `" + name + "` must be " + wanted);
  }
  std::map<std::string, Value> values_;
  mutable std::set<std::string> asked_;
};

}  // namespace runner::plugin
