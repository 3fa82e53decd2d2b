// The names in other tools' files, from schemas/names: one file for each tool. schemas/names/README.md describes the rows.
#pragma once
#include <functional>
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

/// How a value becomes the value of the recipe's key. The conversions after `min_delta` need more than the value.
enum class NameConversion {
  same,
  positive,
  count,  ///< as positive, but a number below 1 is a share of the steps
  whole,
  list,
  patience,  ///< a field of early stopping
  min_delta,
  first,
  second,
  hint,
  steps,
  per_epoch,  ///< how often in an epoch something happens, instead of after how many steps
  decay,
  replicate,
  shard,
  datasets,
  callbacks  ///< Lightning's, and its loggers
};

struct ToolName {
  ForeignName name;  ///< with a key: only suggested in recipes
  NameConversion as = NameConversion::same;
  bool file_only = false;  ///< not answered in recipes
};

/// A default of a tool that is not the default of recipes.
struct ToolDefault {
  std::string key;
  nlohmann::json value;                             ///< null: as in recipes, whatever the base says
  std::vector<std::string> with = {};               ///< the file has one of these names
  std::vector<std::string> unless = {};             ///< the file has none of these names
  std::map<std::string, nlohmann::json> when = {};  ///< the values of other keys; null: unset
  double share = 0;                                 ///< of the steps, but at most `value`
  std::string twice = "";                           ///< a key: the value is twice its value
};

/// Names of a file that have no effect because of others.
struct ToolSwitch {
  std::vector<std::string> by;                 ///< all of them must be off
  std::vector<std::string> on = {}, off = {};  ///< values as words, "" without the name; `off` is read if `on` is empty
  std::vector<std::string> names;              ///< "checkpoint." is all that begin so

  /// A note for the names if they have no effect. `value_of` gives the value of a name of the file; null: it has none.
  std::optional<std::string> why_off(const std::function<nlohmann::json(const std::string&)>& value_of) const;
  bool has(const std::string& name) const;
};

/// The names of one tool.
struct ToolNames {
  std::string tool;   ///< "torchtitan"
  std::string title;  ///< "torchtitan's job configuration"
  std::string base;   ///< the tool whose names this one has, too; empty: none
  std::vector<std::string> sections = {};
  std::map<std::string, ToolName> names = {};
  std::vector<ToolDefault> defaults = {};  ///< the first that fits counts; those of the base follow
  std::vector<ToolSwitch> switches = {};

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
