// The lookup of other tools' names: the arguments that recipes take, then those that strategies and importers know, then the names in
// tools' files.
#include "runner/config/foreign_names.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/tool_names.hpp"

namespace runner {

using nlohmann::json;

ForeignName::Meaning ForeignName::any_value() {
  return [](const json&) { return Values{}; };
}

ForeignName::Meaning ForeignName::same_value_of(std::string key) {
  return [key = std::move(key)](const json& value) { return Values{{key, value}}; };
}

ForeignName::Meaning ForeignName::one_of(std::vector<json> values) {
  for (auto& value : values)
    if (value.is_string()) value = lower(value.get<std::string>());
  return [values = std::move(values)](const json& value) -> std::optional<Values> {
    json wanted = value.is_string() ? json(lower(value.get<std::string>())) : value;
    bool found = std::find(values.begin(), values.end(), wanted) != values.end();
    return found ? std::optional(Values{}) : std::nullopt;
  };
}

ForeignName ForeignName::accepted(std::string name, std::string note) {
  return {.name = std::move(name), .meaning = any_value(), .note = std::move(note)};
}

namespace {

/// Translates true and false by the table `meant`. A value that is not in the table has no effect.
ForeignName::Meaning by_switch(const std::string& key, const json& meant) {
  return [key, meant](const json& value) -> std::optional<ForeignName::Values> {
    if (!value.is_boolean()) return std::nullopt;
    const auto found = meant.find(value.dump());
    return found == meant.end() ? ForeignName::Values{} : ForeignName::Values{{key, *found}};
  };
}

ForeignName::Meaning meaning_of_argument(const ForeignName& name, const json& row) {
  if (row.contains("off")) return ForeignName::one_of(row["off"].get<std::vector<json>>());
  if (row.contains("switch")) return by_switch(name.key, row["switch"]);
  if (!name.refusal.empty() || name.only_suggested) return {};
  return name.key.empty() ? ForeignName::any_value() : ForeignName::same_value_of(name.key);
}

constexpr const char* row_fields[] = {"key", "note", "why", "off", "switch", "suggested", "in_strategy"};

ForeignNames by_name(std::vector<ForeignName> list) {
  ForeignNames names;
  for (auto& name : list) names.emplace(name.name, std::move(name));
  return names;
}

/// The rows of arguments.toml or strategies.toml.
ForeignNames arguments_in(std::string_view text, const std::string& file) {
  ForeignNames names;
  const json content = parse_names(text, file);
  for (const auto& group : content.at("group"))
    for (const auto& [name, row] : group.at("names").items()) {
      for (const auto& [field, value] : row.items())
        RUNNER_CHECK(std::ranges::find(row_fields, field) != std::end(row_fields),
                     "schemas/names: {}: unknown field {}", name, field);
      ForeignName made{.name = name,
                       .key = row.value("key", ""),
                       .only_suggested = row.value("suggested", false),
                       .in_strategy = row.value("in_strategy", true),
                       .note = row.value("note", ""),
                       .refusal = row.value("why", ""),
                       .sections = group.value("sections", std::vector<std::string>())};
      made.meaning = meaning_of_argument(made, row);
      RUNNER_CHECK(has_row(text, name), "schemas/names: {} is not at the beginning of a line", name);
      const bool is_new = names.emplace(name, std::move(made)).second;
      RUNNER_CHECK(is_new, "schemas/names: {} occurs twice", name);
    }
  return names;
}

}  // namespace

const ForeignName* find_strategy_argument(const std::string& name) {
  static const ForeignNames translated = by_name(translated_strategy_names());
  if (const auto found = translated.find(name); found != translated.end()) return &found->second;
  if (!has_row(strategies_text, name)) return nullptr;
  static const ForeignNames rows = arguments_in(strategies_text, "strategies");
  const auto found = rows.find(name);
  return found == rows.end() ? nullptr : &found->second;
}

const ForeignName* find_foreign_name(const std::string& name, FindName more) {
  static const ForeignNames translated = by_name(translated_names());
  if (const auto found = translated.find(name); found != translated.end()) return &found->second;
  if (has_row(arguments_text, name)) {
    static const ForeignNames rows = arguments_in(arguments_text, "arguments");
    if (const auto found = rows.find(name); found != rows.end()) return &found->second;
  }
  const auto* other = more ? more(name) : nullptr;
  return other ? other : find_tool_name(name);
}

std::optional<std::string> key_meant_by(const std::string& name, FindName more) {
  if (const auto* section = find_section(name); section && !section->main_key.empty())
    return name + "." + section->main_key;
  for (const auto& key : key_table())
    if (key.name == name) return key.dotted();
  const auto* foreign = find_foreign_name(name, more);
  return foreign && !foreign->key.empty() ? std::optional(foreign->key) : std::nullopt;
}

}  // namespace runner
