// A sweep file: [sweep] with method, metric, goal, space and limits, or the same in Lua. Mistakes are reported with
// their positions.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/config/config.hpp"
#include "runner/sweep/search.hpp"

namespace runner::sweep {

struct SweepFile {
  std::string name, file, source;
  std::string recipe;                  ///< path of the recipe that is varied
  std::string named_recipe;            ///< path of the recipe that the file names: the same, unless there is a snapshot
  std::vector<std::string> overrides;  ///< [sweep.set] in the form of --set; a snapshot already contains them
  std::string method = "random";       ///< "lua": the file's `run`; empty: the file names an unknown method
  nlohmann::json method_options = nlohmann::json::object();
  std::string metric = "val_loss";
  Goal goal = Goal::min;
  bool best_value = false;  ///< a trial's value is the best point of its curve, not the last
  bool reports = false;     ///< in Lua: `run` receives every point of the metric and may stop trials
  uint64_t seed = 0;
  std::optional<int> parallel;         ///< none: one trial on each device slot
  std::optional<double> time_s;        ///< time after which no trial starts
  std::optional<double> trial_time_s;  ///< time after which a trial fails (timeout)
  Limits limits;
  Space space;

  bool in_lua() const { return method == "lua"; }
  /// Whether trials report each point of the metric while they run.
  bool uses_reports() const;
  std::unique_ptr<Method> make_method() const;
  Search make_search() const;
};

/// Reads `text`, the content of `file`. It is Lua if the name ends in .lua (lua_sweep.hpp). Checks keys, ranges and
/// choices against the table of recipe keys and the recipe. Throws RecipeError with all mistakes. `snapshot`: the
/// recipe with which the sweep started; it replaces the recipe that the file names and [sweep.set].
SweepFile parse_sweep(const std::string& text, const std::string& file, const std::string& snapshot = "");
SweepFile load_sweep(const std::string& file);

/// "KEY=VALUE" for each parameter, in the form of --set. Keys on which others depend (strategy.name) come first.
std::vector<std::string> overrides_of(const nlohmann::json& parameters);

/// Checks the recipes of some trials before any trial starts: at both ends of every range and with every choice, with
/// random values of the other parameters that satisfy the constraints. In Lua: also the trials that `run` proposes
/// before it needs a result. Other combinations are checked when their trials start. A metric that no trial would
/// report is a mistake, too. Throws RecipeError with one mistake for each parameter, at its position in the sweep file.
/// `inputs`: checks the data and weights that a recipe names.
void check_recipes(const SweepFile& sweep, const RecipeCheck& inputs = {});

/// A note if it is not known whether trials of `recipe` report the metric; otherwise empty.
std::string metric_note(const SweepFile& sweep, const Recipe& recipe);

/// A note if the budget ends the sweep before all trials of its method; otherwise empty.
std::string budget_note(const SweepFile& sweep);

/// A TOML recipe that `extends` the base and sets `overrides` ("KEY=VALUE") and the parameters.
std::string recipe_with(const std::string& base, const std::vector<std::string>& overrides,
                        const nlohmann::json& parameters);

}  // namespace runner::sweep
