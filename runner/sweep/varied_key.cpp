#include "runner/sweep/varied_key.hpp"

#include <cmath>

#include "runner/base/text.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/value_check.hpp"
#include "runner/lua/error.hpp"
#include "runner/selection/strategy_options.hpp"

namespace runner::sweep {

using nlohmann::json;

namespace {

bool all_finite(const json& value) {
  if (value.is_number_float()) return std::isfinite(value.get<double>());
  if (!value.is_structured()) return true;
  for (const auto& item : value)
    if (!all_finite(item)) return false;
  return true;
}

/// The diagnostic in one line. render() uses several.
std::string brief(const Diagnostic& diagnostic) {
  if (diagnostic.suggestion) return fmt::format("{}; did you mean `{}`?", diagnostic.message, *diagnostic.suggestion);
  if (!diagnostic.allowed.empty())
    return fmt::format("{}; it is one of {}", diagnostic.message, join_or(diagnostic.allowed));
  return diagnostic.other_message.empty() ? diagnostic.message : diagnostic.message + "; " + diagnostic.other_message;
}

void flatten(const json& table, const std::string& prefix, const std::string& what, json& flat) {
  for (const auto& [name, value] : table.items()) {
    const bool hook = prefix == "hooks.";
    if (value.is_object() && (hook || (prefix.empty() && find_section(name)))) {
      flatten(value, prefix + name + ".", what, flat);
      continue;
    }
    if (flat.contains(prefix + name))
      throw lua::ScriptMistake(fmt::format("{}: `{}` is given twice", what, prefix + name));
    flat[prefix + name] = value;
  }
}

}  // namespace

std::optional<Diagnostic> unknown_key(const std::string& name) {
  auto dot = name.find('.');
  const bool of_strategy = name.starts_with("strategy.") && name.size() > 9;
  const bool of_hook = name.starts_with("hooks.") && name.find('.', 6) != std::string::npos && name.back() != '.';
  if (of_strategy || of_hook || find_key(name)) return std::nullopt;
  std::vector<std::string> all;
  for (const auto& key : key_table()) all.push_back(key.dotted());
  Diagnostic diagnostic{{}, "unknown-key", fmt::format("the recipe has no key `{}`", name)};
  const Section* section = find_section(name);
  diagnostic.suggestion = section && !section->main_key.empty() ? name + "." + section->main_key : nearest(name, all);
  std::string last = dot == std::string::npos ? name : name.substr(name.rfind('.') + 1);
  if (!diagnostic.suggestion) diagnostic.suggestion = key_meant_by(last, find_argument);
  const std::string whole = name.substr(0, name.rfind('.'));
  if (find_key(whole)) diagnostic.suggestion = whole;  // for example a part of a table
  if (!diagnostic.suggestion) diagnostic.other_message = "`runner help recipe` lists all keys";
  return diagnostic;
}

json checked_parameters(const json& given, const std::string& what) {
  json flat = json::object();
  if (given.is_array() && !given.empty())
    throw lua::ScriptMistake(what + ": needs a table from recipe keys to values, not a list");
  if (given.is_object()) flatten(given, "", what, flat);  // Lua's {} is converted to an empty list
  for (auto& [name, value] : flat.items()) {
    if (auto wrong = unknown_key(name)) throw lua::ScriptMistake(what + ": " + brief(*wrong));
    if (!all_finite(value)) throw lua::ScriptMistake(fmt::format("{}: `{}` is not a finite number", what, name));
    const Key* key = find_key(name);
    if (!key) continue;
    if (auto wrong = check_value(*key, value)) throw lua::ScriptMistake(what + ": " + brief(*wrong));
  }
  return flat;
}

}  // namespace runner::sweep
