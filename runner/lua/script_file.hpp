// The common part of all Lua files of a recipe: a table with name, description, typed options and functions.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/option.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/lua/state.hpp"
#include "runner/plugins/given_options.hpp"

namespace runner::lua {

/// A file as the recipe names it: a path, or the bare name of a shipped file.
struct ScriptSource {
  std::string file;
  Origin asked_at;
};

/// The members that a script may ask of an object. `parts`: members that are objects whose names are known, too.
struct ObjectNames {
  std::string name;
  std::vector<std::string> members;
  std::map<std::string, ObjectNames> parts = {};
  bool are_options = false;  ///< the object is the table of the file's options, and `name` is the file's
};

/// A kind of Lua files, and the fields that are allowed in addition to name, about and options.
struct ScriptKind {
  std::string noun;                                 ///< "hook"
  std::string section;                              ///< of the recipe
  std::string folder = "";                          ///< of the shipped files, for messages
  std::vector<std::string> functions;               ///< names of functions that the program calls
  bool needs_all = false;                           ///< whether a file must have all of them
  std::vector<std::string> fields = {};             ///< names of other fields
  std::map<std::string, std::string> shipped = {};  ///< name -> text
  /// The objects that functions get as their first arguments. What a file asks of them must exist, also if it never runs.
  std::map<std::string, std::vector<ObjectNames>> objects = {};
  std::map<std::string, int> options_at = {};     ///< function -> its parameter that has the options, from 0
  std::vector<std::string> further_options = {};  ///< options that the file does not declare
};

struct ScriptFile {
  const ScriptKind* kind = nullptr;
  std::string name;  ///< default: the file's stem
  std::string about;
  std::string shown;            ///< name of the file in messages
  Origin asked_at;              ///< where the recipe names the file
  std::vector<Option> options;  ///< in alphabetical order
  std::map<std::string, Reference> functions;
  std::map<std::string, Value> fields;
  /// If the file has a field `base`: values for options of what it extends, by name. Not checked.
  nlohmann::json base_options = nlohmann::json::object();
};

/// Runs the file in `state` and reads its table. Mistakes go to `diagnostics`; then there is no result.
std::optional<ScriptFile> load_script(State& state, const ScriptKind& kind, const ScriptSource& source,
                                      std::vector<Diagnostic>& diagnostics);
/// Reads a table that was made by the file `shown`, as load_script() does.
std::optional<ScriptFile> read_script(State& state, const ScriptKind& kind, const ScriptSource& source,
                                      const std::string& shown, const Reference& table,
                                      std::vector<Diagnostic>& diagnostics);

/// Runs the file only for its effects on `globals`; its result is ignored. Returns whether it succeeded.
bool run_script(State& state, const ScriptKind& kind, const ScriptSource& source, const std::vector<Global>& globals,
                std::vector<Diagnostic>& diagnostics);

/// The owner of options, in messages.
struct OptionOwner {
  std::string noun;     ///< "hook"
  std::string name;     ///< of the hook
  std::string section;  ///< of the recipe
};
/// The complete options: values of the recipe (`given`: {option: value}, may be null), and defaults for the rest.
/// `place` returns the origin of a given option. Mistakes go to `diagnostics`.
nlohmann::json complete_options(const OptionOwner& owner, const std::vector<Option>& options,
                                const nlohmann::json& given, const std::function<Origin(const std::string&)>& place,
                                std::vector<Diagnostic>& diagnostics);
/// The complete options of a file.
nlohmann::json complete_options(const ScriptFile& file, const nlohmann::json& given,
                                const std::function<Origin(const std::string&)>& place,
                                std::vector<Diagnostic>& diagnostics);
/// The complete options of the file of a part in [plugins], from plugins.options. The names of its options are added to `asked`; other
/// options are left to other parts.
nlohmann::json part_options(const ScriptFile& file, const Recipe& recipe, AskedOptions& asked,
                            std::vector<Diagnostic>& diagnostics);

/// The file of data.order, which has a function `sample`.
std::optional<ScriptFile> load_order_file(State& state, const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

/// An environment variable with the name of StateOptions::lines_file.
inline constexpr const char* lines_variable = "RUNNER_LUA_LINES";

/// The limits in [hooks], which apply to every script of a recipe.
StateOptions script_state_options(const Recipe& recipe);

/// "hook ema failed in setup: WHAT", and where the recipe names its file, if that is known. `who`: "hook ema".
std::string failure_text(const std::string& who, const std::string& function, const std::string& what,
                         const Origin& asked_at);

/// A number of bytes or calls that a script returned; nullopt unless it is a number from 0 to 2^50.
std::optional<int64_t> claimed_count(const nlohmann::json& claim);

}  // namespace runner::lua
