#include "runner/config/toml_source.hpp"

#include <algorithm>
#include <optional>
#include <sstream>

#include "runner/base/json_text.hpp"
#include "runner/base/text.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/config/file_format.hpp"

namespace runner {

using nlohmann::json;

namespace {

/// A word without quotes where a value must be.
struct BareWord {
  size_t begin, size;  ///< in the line
};

/// The bare word around `at`. `of_value`: the parser knows that a value must be there, also at the beginning of a line.
std::optional<BareWord> bare_word(const std::string& line, size_t at, bool of_value) {
  if (at >= line.size() || trim(line).starts_with('[')) return std::nullopt;
  const size_t before = line.find_last_of("=,[ \t", at);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  const size_t left = begin == 0 ? begin : line.find_last_not_of(" \t", begin - 1);
  const bool after_equals =
      begin > 0 && left != std::string::npos && std::string("=,[").find(line[left]) != std::string::npos;
  if (!after_equals && !of_value) return std::nullopt;
  const size_t size = trim(std::string_view(line).substr(begin, line.find_first_of(",]}#", begin) - begin)).size();
  const auto word = std::string_view(line).substr(begin, size);
  const bool number = word.find_first_not_of("0123456789+-._eE:") == std::string::npos;
  if (number || word.find_first_of("\"'{=") != std::string::npos) return std::nullopt;
  return BareWord{begin, size};
}

/// Explains a bare word at `place`, to which it moves the caret; empty: there is none.
std::string explain_bare_word(Origin& place, bool of_value) {
  const auto& line = place.excerpt;
  if (place.column < 1) return "";
  const auto found = bare_word(line, static_cast<size_t>(place.column) - 1, of_value);
  if (!found) return "";
  const std::string word = line.substr(found->begin, found->size);
  place.column = static_cast<int>(found->begin) + 1;
  place.span = static_cast<int>(found->size);
  const auto small = lower(word);
  if (small == "true" || small == "false") return fmt::format("TOML writes {}, not {}", small, word);
  if (small == "none" || small == "null") return fmt::format("TOML has no {}; leave the key out", word);
  const std::string quoted = json_text(json(word));
  const std::string after = line.substr(found->begin + found->size);
  const std::string corrected = line.substr(0, found->begin) + quoted + after.substr(0, after.find('#'));
  return fmt::format("strings need double quotes: {}", trim(corrected));
}

/// A date or a time, as written; empty for other nodes.
std::string date_text(const toml::node& node) {
  std::ostringstream text;
  if (const auto* date = node.as_date()) text << date->get();
  if (const auto* time = node.as_time()) text << time->get();
  if (const auto* both = node.as_date_time()) text << both->get();
  return text.str();
}

/// Where a TOML text continues after the string, or the comment, that begins at `at`.
size_t after_string(std::string_view text, size_t at) {
  const char quote = text[at];
  if (quote == '#') return std::min(text.find('\n', at), text.size());
  const bool lines = text.substr(at, 3) == std::string(3, quote);
  for (at += lines ? 3 : 1; at < text.size(); ++at) {
    if (text[at] == '\\' && quote == '"')
      ++at;
    else if (!lines && (text[at] == quote || text[at] == '\n'))
      return at + 1;
    else if (lines && text.substr(at, 3) == std::string(3, quote))  // up to two more quotes belong to the string
      return std::min(text.find_first_not_of(quote, at), at + 5);
  }
  return text.size();
}

/// Throws toml::parse_error for a key with too many parts: what is nested as deeply has no other bound, and is destroyed by recursion.
void check_keys(std::string_view text) {
  constexpr int parts_max = 16;
  int dots = 0;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    dots = c == '.' ? dots + 1 : std::string_view("=[]{},\n").find(c) != std::string_view::npos ? 0 : dots;
    if (dots == parts_max) {
      const auto before = text.substr(0, at);
      const size_t line = static_cast<size_t>(std::ranges::count(before, '\n')) + 1, column = at - before.rfind('\n');
      throw toml::parse_error(
          "a key has at most 16 parts, with dots between them",
          toml::source_position{static_cast<toml::source_index>(line), static_cast<toml::source_index>(column)});
    }
    at = c == '"' || c == '\'' || c == '#' ? after_string(text, at) : at + 1;
  }
}

}  // namespace

toml::table parse_bounded_toml(std::string_view text, std::string_view name) {
  check_keys(text);
  return toml::parse(text, name);
}

toml::table parse_toml(const std::string& text, const TomlSource& source) {
  try {
    return parse_bounded_toml(text, source.name);
  } catch (const toml::parse_error& error) {
    Diagnostic mistake{source.at(error.source(), 1), "syntax", std::string(error.description())};
    if (const auto other = wrong_format(FileFormat::toml, source.name, text); !other.empty()) {
      mistake = {.code = "wrong-format", .message = other};
      mistake.place.file = source.name;
      throw RecipeError({mistake});
    }
    auto mentions = [&](const char* words) { return mistake.message.find(words) != std::string::npos; };
    if (mentions("parsing key-value pair")) throw RecipeError({mistake});  // such as a key that is set twice
    const auto why = explain_bare_word(mistake.place, /*of_value=*/mentions("parsing value"));
    if (!why.empty()) mistake.message = why;
    throw RecipeError({mistake});
  }
}

json to_json(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table: {
      json object = json::object();
      for (const auto& [key, value] : *node.as_table()) object[std::string(key.str())] = to_json(value);
      return object;
    }
    case toml::node_type::array: {
      json array = json::array();
      for (const auto& value : *node.as_array()) array.push_back(to_json(value));
      return array;
    }
    case toml::node_type::string:
      return node.as_string()->get();
    case toml::node_type::integer:
      return node.as_integer()->get();
    case toml::node_type::floating_point:
      return node.as_floating_point()->get();
    case toml::node_type::boolean:
      return node.as_boolean()->get();
    default:
      return {{"date", date_text(node)}};
  }
}

LocatedJson to_tree(const toml::node& node, const json& expanded, const Origin& key_place, const TomlSource& source) {
  LocatedJson tree;
  tree.place = source.at(node.source());
  tree.key_place = key_place;
  tree.is_object = node.is_table();
  if (!node.is_table()) tree.value = expanded;
  if (const auto* table = node.as_table())
    for (const auto& [key, value] : *table) {
      std::string name(key.str());
      tree.members.emplace_back(
          name, to_tree(value, expanded.at(name), source.at(key.source(), static_cast<int>(name.size())), source));
    }
  return tree;
}

LocatedJson parse_located_toml(const std::string& text, const std::string& name) {
  TomlSource source{.name = name, .lines = split(text, '\n')};
  const toml::table table = parse_toml(text, source);
  const Origin whole{.file = name};
  auto tree = to_tree(table, to_json(table), whole, source);
  tree.place = whole;
  return tree;
}

}  // namespace runner
