#include "runner/config/unknown_names.hpp"

#include <algorithm>

#include "runner/base/foreign_json.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/tool_names.hpp"

namespace runner {

namespace {

/// A list of at most so many names is printed as it is.
constexpr size_t short_list = 12;

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  for (const auto& section : sections()) names.push_back(section.name);
  return names;
}

/// The three names that are most similar: those that share a word with `name`, then those with the fewest edits.
std::vector<std::string> similar(const std::string& name, const std::vector<std::string>& known) {
  const auto words = split(lower(name), '_');
  std::vector<std::pair<int, std::string>> ranked;
  for (const auto& other : known) {
    const auto its = split(lower(other), '_');
    const auto shared = std::ranges::count_if(
        its, [&](const auto& word) { return word.size() > 2 && std::ranges::find(words, word) != words.end(); });
    ranked.emplace_back(edit_distance(lower(name), lower(other)) - 100 * static_cast<int>(shared), other);
  }
  std::ranges::sort(ranked);
  std::vector<std::string> nearest;
  for (const auto& [rank, other] : ranked)
    if (nearest.size() < 3 && std::ranges::find(nearest, "`" + other + "`") == nearest.end())
      nearest.push_back("`" + other + "`");
  return nearest;
}

/// The meaning in a recipe of another tool's name with this value.
std::string line_for(const ForeignName& foreign, const nlohmann::json& value) {
  const auto meant = foreign.meaning ? foreign.meaning(value) : std::nullopt;
  if (!meant) return foreign.refusal;
  std::vector<std::string> lines;
  for (const auto& [key, its_value] : *meant)
    if (!its_value.is_null()) lines.push_back(fmt::format("{} = {}", key, toml_value(its_value)));
  if (!lines.empty()) return "in a recipe: " + join(lines, ", ");
  return fmt::format("`{} = {}` has no effect here: leave it out", foreign.name, toml_value(value));
}

/// The line for a value whose key, or the main key of whose section, is `key`; other sections may have a key of this name, too. For a value
/// that the key refuses: why.
std::string line_for_key(const std::string& key, const std::string& name, const nlohmann::json& value) {
  auto checked = value;
  const auto* meant = find_key(key);
  if (const auto mistake = meant ? check_value(*meant, checked) : std::nullopt) return key + ": " + mistake->message;
  std::vector<std::string> others;
  for (const auto& other : key_table())
    if (other.name == name && other.dotted() != key && !find_section(name)) others.push_back("[" + other.section + "]");
  return fmt::format("in a recipe: {} = {}{}", key, toml_value(value),
                     others.empty() ? "" : fmt::format("; `{}` is also a key of {}", name, join(others, ", ")));
}

}  // namespace

void answer_unknown(Diagnostic& diagnostic, const std::string& name, const nlohmann::json& value,
                    const std::vector<std::string>& known, const std::string& in_help, FindName names) {
  diagnostic.allowed = known;
  const auto* own = find_foreign_name(diagnostic.section + "." + name, names);
  const auto* foreign = own ? own : find_foreign_name(name, names);
  diagnostic.suggestion = own && !own->key.empty() ? own->key : key_meant_by(name, names);
  const bool of_foreign = foreign && (!diagnostic.suggestion || *diagnostic.suggestion == foreign->key);
  if (of_foreign) diagnostic.other_message = line_for(*foreign, value);
  if (of_foreign && foreign->meaning && foreign->meaning(value) == ForeignName::Values{}) diagnostic.suggestion.reset();
  const auto* section = find_section(name);
  if (section && section->unavailable.empty() && (value.is_object() || (section->main_key.empty() && !of_foreign))) {
    diagnostic.suggestion.reset();
    diagnostic.other_message = fmt::format("`{0}` is a section of its own: write [{0}] and its keys below", name);
  } else if (!of_foreign && diagnostic.suggestion && !value.is_null() && !value.is_object()) {
    diagnostic.other_message = line_for_key(*diagnostic.suggestion, name, value);
  }
  if (!diagnostic.suggestion && !of_foreign && diagnostic.other_message.empty())
    diagnostic.suggestion = nearest(name, known);
  if (!diagnostic.suggestion && diagnostic.other_message.empty() && known.size() > short_list)
    diagnostic.other_message = fmt::format("nearest: {}; `{}` lists all", join(similar(name, known), ", "), in_help);
}

Diagnostic unknown_section(const std::string& name, bool table, const nlohmann::json& value, const Origin& place,
                           FindName names) {
  Diagnostic diagnostic{place, "unknown-key",
                        fmt::format("unknown {} `{}`", table ? "section" : "key", shortened_text(name))};
  const auto* tool = table ? tool_with_section(name) : nullptr;
  if (tool) {
    diagnostic.allowed = section_names();
    diagnostic.other_message =
        fmt::format("it is a section of {}; `runner import FILE` translates such a file", tool->title);
  } else {
    auto known = section_names();
    for (const auto& key : top_level_keys()) known.push_back(key.name);
    answer_unknown(diagnostic, name, value, known, "runner help recipe", names);
    diagnostic.allowed = section_names();
  }
  auto meant = diagnostic.suggestion.value_or(name);
  diagnostic.section = meant.substr(0, meant.find('.'));
  diagnostic.name = name;
  return diagnostic;
}

Diagnostic unknown_key(const std::string& section, const std::string& name, const nlohmann::json& value,
                       const Origin& place, FindName names) {
  std::vector<std::string> here;
  for (const auto& key : key_table())
    if (key.section == section) here.push_back(key.name);
  Diagnostic diagnostic{.place = place,
                        .code = "unknown-key",
                        .message = fmt::format("unknown key `{}` in [{}]", shortened_text(name), section),
                        .section = section,
                        .name = name};
  answer_unknown(diagnostic, name, value, here, "runner help recipe " + section, names);
  return diagnostic;
}

Diagnostic unknown_removal(const std::string& name, const Origin& place, FindName names) {
  auto all = section_names();
  for (const auto& key : key_table()) all.push_back(key.dotted());
  Diagnostic diagnostic{place, "unknown-key", fmt::format("recipes have no section or key `{}`", shortened_text(name))};
  diagnostic.suggestion = key_meant_by(name, names);
  if (!diagnostic.suggestion) diagnostic.suggestion = nearest(name, all);
  return diagnostic;
}

}  // namespace runner
