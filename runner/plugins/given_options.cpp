#include "runner/plugins/given_options.hpp"

#include <algorithm>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

using nlohmann::json;

template <typename T>
plugin::Options::Value list_value(const json& value) {
  return value.get<std::vector<T>>();
}

plugin::Options::Value option_value(const std::string& key, const std::string& name, const json& value) {
  const auto all = [&](auto&& is) { return value.is_array() && std::all_of(value.begin(), value.end(), is); };
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  if (all([](const json& item) { return item.is_number_integer(); })) return list_value<int64_t>(value);
  if (all([](const json& item) { return item.is_number(); })) return list_value<double>(value);
  if (all([](const json& item) { return item.is_string(); })) return list_value<std::string>(value);
  throw usage_error("{}: `{}` must be a number, a string, true, false, or a list of numbers or of strings", key, name);
}

/// "; did you mean `bucket`?", or all names.
std::string instead_of(const std::string& name, const std::set<std::string>& asked, const std::string& owner) {
  const std::vector<std::string> known(asked.begin(), asked.end());
  if (const auto near = nearest(name, known)) return fmt::format("; did you mean `{}`?", *near);
  return known.empty() ? fmt::format("; {} none", owner) : fmt::format("; {} {}", owner, join(known, ", "));
}

}  // namespace

plugin::Options plugin_options(const json& values, const std::string& key) {
  std::map<std::string, plugin::Options::Value> read;
  for (const auto& [name, value] : values.items()) read.emplace(name, option_value(key, name, value));
  return plugin::Options(std::move(read));
}

void check_asked(const plugin::Options& options, const std::string& key) {
  for (const auto& [name, value] : options.values())
    if (!options.asked().contains(name))
      throw usage_error("{}: the plug-in has no option `{}`{}", key, name, instead_of(name, options.asked(), "it has"));
}

void AskedOptions::check(const json& given, const std::string& key) const {
  for (const auto& [name, value] : given.items())
    if (!names_.contains(name))
      throw usage_error("{}: no plug-in of this recipe has an option `{}`{}", key, name,
                        instead_of(name, names_, "they have"));
}

}  // namespace runner
