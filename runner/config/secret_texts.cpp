#include "runner/config/secret_texts.hpp"

#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/base/utf8.hpp"
#include "runner/config/config.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/config/toml_source.hpp"

namespace runner {

using nlohmann::json;

namespace {

struct Change {
  size_t begin, end;  ///< bytes of the text
  std::string written;
};

/// The offset of a position of the parser, which counts lines and characters from 1.
size_t offset_of(const std::string& text, const toml::source_position& position) {
  size_t at = 0;
  for (auto line = position.line; line > 1 && at < text.size(); --line) at = text.find('\n', at) + 1;
  for (auto column = position.column; column > 1 && at < text.size(); --column) {
    ++at;
    while (at < text.size() && unicode::continues(text[at])) ++at;
  }
  return at;
}

/// The values of `node` that differ from `wanted`, which has the same form.
void find_changes(const std::string& text, const toml::node& node, const json& wanted, std::vector<Change>& changes) {
  if (const auto* table = node.as_table()) {
    for (const auto& [key, value] : *table) find_changes(text, value, wanted.at(std::string(key.str())), changes);
  } else if (const auto* array = node.as_array()) {
    for (size_t i = 0; i < array->size(); ++i) find_changes(text, *array->get(i), wanted.at(i), changes);
  } else if (wanted != to_json(node)) {
    const auto& region = node.source();
    changes.push_back({offset_of(text, region.begin), offset_of(text, region.end), toml_value(wanted)});
  }
}

}  // namespace

std::string recipe_without_secrets(const std::string& text, Secrets& secrets) {
  toml::table table;
  try {
    table = parse_toml(text, {.name = "", .lines = split(text, '\n')});
  } catch (const RecipeError&) {
    return secrets.take_from(text);
  }
  std::vector<std::string> keys;
  const json wanted = secrets.take_from(to_json(table), keys);
  std::vector<Change> changes;
  find_changes(text, table, wanted, changes);
  std::ranges::sort(changes, std::greater<>(), &Change::begin);
  std::string out = text;
  for (const auto& change : changes) out.replace(change.begin, change.end - change.begin, change.written);
  return out;
}

}  // namespace runner
