#include "runner/config/tool_names.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/text.hpp"
#include "runner/base/toml.hpp"
#include "runner/config/config.hpp"
#include "runner/config/toml_source.hpp"

namespace runner {

namespace {

using nlohmann::json;
using Values = ForeignName::Values;

constexpr std::pair<const char*, NameConversion> conversions[] = {
    {"same", NameConversion::same},           {"positive", NameConversion::positive},
    {"whole", NameConversion::whole},         {"list", NameConversion::list},
    {"first", NameConversion::first},         {"second", NameConversion::second},
    {"hint", NameConversion::hint},           {"steps", NameConversion::steps},
    {"decay", NameConversion::decay},         {"count", NameConversion::count},
    {"shard", NameConversion::shard},         {"replicate", NameConversion::replicate},
    {"datasets", NameConversion::datasets},   {"per_epoch", NameConversion::per_epoch},
    {"callbacks", NameConversion::callbacks}, {"patience", NameConversion::patience},
    {"min_delta", NameConversion::min_delta}};

/// A value as a key of `values`: true -> "true". A list of words and a string with commas are the words with spaces.
std::string as_word(const json& value) {
  if (value.is_string()) return join(split(lower(value.get<std::string>()), ','), " ");
  if (!value.is_array()) return value.is_null() ? "" : value.dump();
  std::vector<std::string> words;
  for (const auto& item : value) words.push_back(as_word(item));
  return join(words, " ");
}

/// "unset" stands for no value.
json value_or_unset(const json& value) { return value == "unset" ? json() : value; }

std::optional<Values> converted(const std::string& key, NameConversion as, const json& value) {
  switch (as) {
    case NameConversion::same:
      return Values{{key, value}};
    case NameConversion::positive:
    case NameConversion::count: {
      if (as == NameConversion::count && value.is_number_float() && value > 0.0 && value < 1.0) return std::nullopt;
      const bool none = value.is_null() || value == "" || value == false || (value.is_number() && value <= 0);
      return none ? Values{} : Values{{key, value}};
    }
    case NameConversion::whole: {
      const bool whole = value.is_number_integer() ? value >= 1 : value.is_number_float() && value > 1.0;
      return whole ? std::optional(Values{{key, value}}) : std::nullopt;
    }
    case NameConversion::list: {
      if (!value.is_string()) return Values{{key, value}};
      json items = json::array();
      for (const auto& item : split(value.get<std::string>(), ',')) items.push_back(std::string(trim(item)));
      return Values{{key, items}};
    }
    case NameConversion::patience:
    case NameConversion::min_delta:
      return Values{{key, json::object({{as == NameConversion::patience ? "patience" : "min_delta", value}})}};
    default:
      return std::nullopt;
  }
}

/// A row is copied into its meaning, because ForeignName::Meaning has no other place for it.
ForeignName::Meaning meaning_of(const json& row, NameConversion as) {
  return [row, as](const json& value) -> std::optional<Values> {
    const std::string key = row.value("key", ""), word = as_word(value);
    if (row.contains("note") && key.empty()) return Values{};
    for (const auto& off : row.value("off", json::array()))
      if (as_word(off) == word) return Values{};
    if (row.contains("values")) {
      for (const auto& [given, meant] : row["values"].items()) {
        if (as_word(given) != word) continue;
        if (!meant.is_object()) return Values{{key, value_or_unset(meant)}};
        Values values;
        for (const auto& [its_key, its_value] : meant.items()) values.emplace_back(its_key, value_or_unset(its_value));
        return values;
      }
      if (!row.contains("as")) return std::nullopt;
    }
    return key.empty() ? std::nullopt : converted(key, as, value);
  };
}

ToolName row_of(const std::string& name, const json& row) {
  const std::string as = row.value("as", "same");
  const auto found = std::ranges::find(conversions, as, [](const auto& one) { return std::string(one.first); });
  RUNNER_CHECK(found != std::end(conversions), "schemas/names: {}: as = {}", name, as);
  const std::string key = row.value("key", "");
  const bool item = as == "first" || as == "second";
  const std::string why = row.value("why", key.empty() ? ""
                                           : item      ? fmt::format("it is the {} item of {}", as, key)
                                                       : "its value has no counterpart here");
  return {.name = {.name = name.substr(name.rfind('.') + 1),
                   .key = key,
                   .only_suggested = !key.empty(),
                   .in_strategy = false,
                   .meaning = meaning_of(row, found->second),
                   .note = row.value("note", row.contains("off") ? "nothing to do: " + why : ""),
                   .refusal = why},
          .as = found->second,
          .file_only = row.value("file_only", false)};
}

ToolDefault default_of(const json& row) {
  const std::vector<std::string> none;
  ToolDefault one{.key = row.at("key"),
                  .value = row.value("value", json()),
                  .with = row.value("with", none),
                  .unless = row.value("unless", none),
                  .share = row.value("share", 0.0),
                  .twice = row.value("twice", "")};
  const json when = row.value("when", json::object());
  for (const auto& [key, value] : when.items()) one.when[key] = value_or_unset(value);
  return one;
}

ToolSwitch switch_of(const json& row) {
  const auto words = [&](const char* field) {
    std::vector<std::string> all;
    for (const auto& value : row.value(field, json::array())) all.push_back(as_word(value));
    return all;
  };
  return {.by = row.at("by"), .on = words("on"), .off = words("off"), .names = row.at("names")};
}

/// `same_as` is another row, of the file or of its base.
json resolved(const json& row, const json& rows, const json& base) {
  if (!row.contains("same_as")) return row;
  const std::string other = row["same_as"];
  return rows.contains(other) ? rows[other] : base.at(other);
}

}  // namespace

json parse_names(std::string_view text, std::string_view name) {
  return to_json(toml::parse(text, fmt::format("schemas/names/{}.toml", name)));
}

std::optional<std::string> ToolSwitch::why_off(const std::function<json(const std::string&)>& value_of) const {
  std::string why;
  for (const auto& name : by) {
    const json value = value_of(name);
    const auto& words = on.empty() ? off : on;
    if ((std::ranges::find(words, as_word(value)) != words.end()) != on.empty()) return std::nullopt;
    if (why.empty() && !value.is_null())
      why = fmt::format("no effect: `{}` is {}", name, shortened_text(toml_value(value)));
  }
  return why.empty() ? fmt::format("no effect without `{}`", by[0]) : why;
}

bool ToolSwitch::has(const std::string& name) const {
  return std::ranges::find(by, name) == by.end() && std::ranges::any_of(names, [&](const std::string& one) {
           return name == one || (one.ends_with('.') && name.starts_with(one));
         });
}

const ToolName* ToolNames::find(const std::string& name) const {
  if (const auto found = names.find(name); found != names.end()) return &found->second;
  for (const auto& other : tool_names())
    if (other.tool == base) return other.find(name);
  return nullptr;
}

const std::vector<ToolNames>& tool_names() {
  static const std::vector<ToolNames> all = [] {
    std::vector<ToolNames> tools;
    std::map<std::string, json> rows;
    for (const auto& [tool, text] : names_files) rows[std::string(tool)] = parse_names(text, tool);
    for (const auto& [tool, text] : names_files) {
      const json& file = rows[std::string(tool)];
      ToolNames names{.tool = std::string(tool),
                      .title = file.at("title"),
                      .base = file.value("base", ""),
                      .sections = file.value("sections", std::vector<std::string>())};
      const json base = names.base.empty() ? json::object() : rows.at(names.base).at("names");
      for (const auto& [name, row] : file.at("names").items())
        names.names.emplace(name, row_of(name, resolved(row, file.at("names"), base)));
      for (const auto& source : {names.tool, names.base}) {
        const auto own = names.switches;
        const json rows_of = source.empty() ? json::object() : rows.at(source);
        for (const auto& row : rows_of.value("defaults", json::array())) names.defaults.push_back(default_of(row));
        for (const auto& row : rows_of.value("switches", json::array()))  // one of the tool replaces that of its base
          if (auto one = switch_of(row); std::ranges::find(own, one.by, &ToolSwitch::by) == own.end())
            names.switches.push_back(std::move(one));
      }
      tools.push_back(std::move(names));
    }
    return tools;
  }();
  return all;
}

const ToolNames* tool_with_section(const std::string& name) {
  for (const auto& [tool, text] : names_files)
    if (text.find("\"" + name + "\"") != std::string_view::npos)
      for (const auto& names : tool_names())
        if (std::ranges::find(names.sections, name) != names.sections.end()) return &names;
  return nullptr;
}

bool has_row(std::string_view text, const std::string& name) {
  const bool plain = name.find('.') == std::string::npos;
  return text.find(plain ? "\n" + name + " = {" : "\n\"" + name + "\" = {") != std::string_view::npos;
}

const ForeignName* find_tool_name(const std::string& name) {
  for (size_t at = 0; at < names_files.size(); ++at) {
    if (!has_row(names_files[at].text, name)) continue;
    const auto& names = tool_names()[at].names;
    if (const auto found = names.find(name); found != names.end() && !found->second.file_only)
      return &found->second.name;
  }
  return nullptr;
}

}  // namespace runner
