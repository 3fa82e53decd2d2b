// Reads the parameters of a space from [sweep.space], and checks the recipe keys that trials set, and their values.
#pragma once
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/text.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/config/located_json.hpp"
#include "runner/sweep/space.hpp"

namespace runner::sweep {

/// Collects all mistakes in a located table; throw_if_any() throws them in the order of their places.
class Problems {
 public:
  void add(const Origin& place, const std::string& code, const std::string& message,
           const std::vector<std::string>& allowed = {}, const std::string& wrong_name = "") {
    Diagnostic diagnostic{.place = place, .code = code, .message = message, .allowed = allowed};
    if (!wrong_name.empty()) diagnostic.suggestion = nearest(wrong_name, allowed);
    list_.push_back(std::move(diagnostic));
  }
  void add(Diagnostic diagnostic) { list_.push_back(std::move(diagnostic)); }
  bool empty() const { return list_.empty(); }
  void throw_if_any() {
    if (list_.empty()) return;
    sort_by_place(list_);
    throw RecipeError(list_);
  }

 private:
  std::vector<Diagnostic> list_;
};

// Readers of a located table: each key is read once, and the remaining keys are unknown.

/// Reports the keys of `table` that are not in `known`: "unknown key `x` in WHERE".
inline void check_names(const LocatedJson& table, const std::vector<std::string>& known, const std::string& where,
                        Problems& problems) {
  for (const auto& [name, value] : table.members)
    if (std::find(known.begin(), known.end(), name) == known.end())
      problems.add(value.key_place, "unknown-key", fmt::format("unknown key `{}` in {}", name, where), known, name);
}

/// "`gamma` must be a number, not "x"".
inline void wrong_type(const LocatedJson& value, const std::string& name, const std::string& wanted,
                       Problems& problems) {
  problems.add(value.place, "wrong-type",
               fmt::format("`{}` must be {}, not {}", name, wanted, value.is_object ? "a table" : value.value.dump()));
}

struct ReadSpace {
  std::vector<Parameter> parameters;     ///< in the order of the file
  std::map<std::string, Origin> places;  ///< position of each parameter in the file
};

/// Keys are dotted keys of the recipe ("optimizer.lr", quoted or as tables); values are a list of choices or one of
/// { uniform | log_uniform | integer | choice = ..., step, log, points, when }. `grid`: whether `points` is allowed.
/// Ends and choices are checked against the table of recipe keys.
ReadSpace read_space(const LocatedJson& table, bool grid, Problems& problems);

/// The mistake if `name` is not a dotted recipe key, without a position; nothing if it is one. Options of strategies
/// (`strategy.NAME`) and of hooks (`hooks.HOOK.NAME`) are accepted here and checked with the trial's recipe.
std::optional<Diagnostic> unknown_key(const std::string& name);

/// Checks one trial's {key: value} against the table of recipe keys and converts each value to the type of its key.
/// Sections may be tables: {"optimizer": {"lr": 0.1}}. Throws lua::ScriptMistake; its message begins with `what`.
nlohmann::json checked_parameters(const nlohmann::json& given, const std::string& what);

}  // namespace runner::sweep
