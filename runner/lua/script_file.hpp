// What every file of Lua that a recipe names has in common: a table of a name, a description, typed options and
// functions.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/lua/state.hpp"

namespace runner::lua {

struct ScriptOption {
  std::string type;  ///< number | integer | boolean | string | list
  nlohmann::json default_value;
  std::optional<double> minimum, maximum;
  std::vector<std::string> choices;
  std::string help;
};

/// A file as the recipe names it: a path, or the bare name of a shipped one.
struct ScriptSource {
  std::string file;
  Origin asked_at;
};

/// A kind of such files, and what they may contain besides name, about and options.
struct ScriptKind {
  std::string noun;                    ///< "hook"
  std::string section;                 ///< of the recipe
  std::string folder;                  ///< of the shipped ones, in messages
  std::vector<std::string> functions;  ///< that the program calls
  std::vector<std::string> fields = {};
  const std::map<std::string, std::string>& shipped;  ///< name -> text
};

struct ScriptFile {
  const ScriptKind* kind = nullptr;
  std::string name;  ///< default: the file's stem
  std::string about;
  std::string shown;  ///< the file in messages
  Origin asked_at;    ///< where the recipe names the file
  std::map<std::string, ScriptOption> options;
  std::map<std::string, Reference> functions;
  std::map<std::string, Value> fields;
};

/// Runs the file in `state` and reads its table. What is wrong goes to `diagnostics`, and then there is no result.
std::optional<ScriptFile> load_script(State& state, const ScriptKind& kind, const ScriptSource& source,
                                      std::vector<Diagnostic>& diagnostics);
/// The same of a table that a file which is shown as `shown` has made.
std::optional<ScriptFile> read_script(State& state, const ScriptKind& kind, const ScriptSource& source,
                                      const std::string& shown, const Reference& table,
                                      std::vector<Diagnostic>& diagnostics);

/// Runs the file for what it does with `globals`, whatever it returns; whether nothing went wrong.
bool run_script(State& state, const ScriptKind& kind, const ScriptSource& source, const std::vector<Global>& globals,
                std::vector<Diagnostic>& diagnostics);

/// The complete options: what the recipe gives (`given`: {option: value}, may be null) over the defaults. `place` is
/// the origin of an option that is given. Mistakes go to `diagnostics`.
nlohmann::json complete_options(const ScriptFile& file, const nlohmann::json& given,
                                const std::function<Origin(const std::string& option)>& place,
                                std::vector<Diagnostic>& diagnostics);

/// The budgets of [hooks], which hold for every script of a recipe.
StateOptions script_state_options(const Recipe& recipe);

/// A number of bytes or calls that a script claims; none unless it is a number from 0 to 2^50.
std::optional<int64_t> claimed_count(const nlohmann::json& claim);

/// What is wrong with a value of an option, if anything ("`name` must be ..."). Integers become such.
std::string option_problem(const std::string& name, const ScriptOption& option, nlohmann::json& value);

}  // namespace runner::lua
