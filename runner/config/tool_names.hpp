// The names in other tools' files, from schemas/names: one file for each tool. schemas/names/README.md describes the rows.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runner/config/foreign_names.hpp"

namespace runner {

/// A file of schemas/names in the program (generated).
struct NamesFile {
  std::string_view tool, text;
};
extern const std::vector<NamesFile> names_files;
/// Files with rows of other kinds: arguments.toml, strategies.toml and deepspeed.toml (generated).
extern const std::string_view arguments_text, strategies_text, deepspeed_text;

/// Whether a text of schemas/names has a row of this name. Parses nothing.
bool has_row(std::string_view text, const std::string& name);
/// The content of a file of schemas/names. `name`: of the file, without its end.
nlohmann::json parse_names(std::string_view text, std::string_view name);

/// How a value becomes the value of the recipe's key. The last four need more than the value.
enum class NameConversion { same, positive, whole, list, first, second, hint, steps, decay, datasets };

struct ToolName {
  ForeignName name;  ///< with a key: only suggested in recipes
  NameConversion as = NameConversion::same;
  bool file_only = false;  ///< not answered in recipes
};

/// The names of one tool.
struct ToolNames {
  std::string tool;   ///< "torchtitan"
  std::string title;  ///< "torchtitan's job configuration"
  std::string base;   ///< the tool whose names this one has, too; empty: none
  std::vector<std::string> sections = {};
  std::map<std::string, ToolName> names = {};

  /// The row of a name, also of the base; nullptr: there is none.
  const ToolName* find(const std::string& name) const;
};

/// All tools. They are parsed at the first call.
const std::vector<ToolNames>& tool_names();
/// The tool that has a section of this name in its files; nullptr: none.
const ToolNames* tool_with_section(const std::string& name);
/// The first row of a name in any tool that recipes answer; nullptr: there is none. Nothing is parsed for a name that no file has.
const ForeignName* find_tool_name(const std::string& name);

}  // namespace runner
