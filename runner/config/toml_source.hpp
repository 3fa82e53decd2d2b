// TOML texts: their nodes with locations and values. parse_located_toml() (located_json.hpp) is for files other than recipes.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/base/toml.hpp"
#include "runner/config/file_format.hpp"
#include "runner/config/located_json.hpp"

namespace runner {

/// A text with its lines, for excerpts.
struct TomlSource {
  std::string name;
  std::vector<std::string> lines = {};
  Origin::Kind kind = Origin::Kind::file;
  std::vector<Origin> places = {};  ///< of the lines, if a program computed the text

  Origin at(const toml::source_region& region, int span = 0) const {
    if (!places.empty() && region.begin.line >= 1 && region.begin.line <= places.size())
      return places[region.begin.line - 1];
    Origin origin{.kind = kind, .file = name};
    if (kind == Origin::Kind::set) return origin;
    origin.line = static_cast<int>(region.begin.line);
    origin.column = static_cast<int>(region.begin.column);
    if (origin.line >= 1 && origin.line <= static_cast<int>(lines.size()))
      origin.excerpt = excerpt_of(lines[static_cast<size_t>(origin.line) - 1]);
    bool one_line = region.end.line == region.begin.line;
    origin.span = span > 0 ? span : one_line ? std::max(1, static_cast<int>(region.end.column) - origin.column) : 1;
    return origin;
  }
};

/// The table of a TOML text whose keys do not nest too deeply. Throws toml::parse_error.
toml::table parse_bounded_toml(std::string_view text, std::string_view name = {});

/// The table of a file's TOML text, read by parse_bounded_toml(). Throws RecipeError at the first syntax error.
toml::table parse_toml(const std::string& text, const TomlSource& source);

/// A date or a time becomes {"date": text}, which no key accepts.
nlohmann::json to_json(const toml::node& node);

/// A node as located JSON. `expanded`: its value, in which tables may have other values than in the node.
LocatedJson to_tree(const toml::node& node, const nlohmann::json& expanded, const Origin& key_place,
                    const TomlSource& source);

}  // namespace runner
