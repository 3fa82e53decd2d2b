// A sweep's file: [sweep] with method, metric, goal, space and limits, or the same in Lua, with every mistake located.
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
  std::string named_recipe;            ///< path of the one that the file names: the same, unless there is a snapshot
  std::vector<std::string> overrides;  ///< [sweep.set], as --set takes them; in a snapshot they are applied already
  std::string method = "random";       ///< or "lua": the file's `run`; empty: the file names an unknown method
  nlohmann::json method_options = nlohmann::json::object();
  std::string metric = "val_loss";
  Goal goal = Goal::min;
  bool best_value = false;  ///< a trial's value is the best point of its curve, not the last
  bool reports = false;     ///< in Lua: `run` is told every point of the metric, and may stop trials by it
  uint64_t seed = 0;
  std::optional<int> parallel;         ///< none: as many as there are device slots
  std::optional<double> time_s;        ///< no trial begins later than this after the sweep did
  std::optional<double> trial_time_s;  ///< a trial that takes longer has failed: timeout
  Limits limits;
  Space space;

  bool in_lua() const { return method == "lua"; }
  /// Whether trials are to tell each point of the metric while they run.
  bool uses_reports() const;
  std::unique_ptr<Method> make_method() const;
  Search make_search() const;
};

/// Reads `text`, which stands in `file` (Lua where that ends in .lua: lua_sweep.hpp), and holds keys, ranges and
/// choices against the table of recipe keys and the recipe. Throws RecipeError with all mistakes. `snapshot`: the
/// recipe as the sweep began with it, which stands in for the one that the file names and its [sweep.set].
SweepFile parse_sweep(const std::string& text, const std::string& file, const std::string& snapshot = "");
SweepFile load_sweep(const std::string& file);

/// "KEY=VALUE" for each parameter, as --set takes them: what others depend on (strategy.name) before these.
std::vector<std::string> overrides_of(const nlohmann::json& parameters);

/// Makes the recipes at both ends of every range and with every choice, with the other parameters at random as the
/// constraints allow, and throws RecipeError with what is wrong with them, at the place in the sweep's file of the
/// parameter that is to blame, once for each. What only other combinations show is left to their trials. Of a sweep in
/// Lua also the recipes of the trials that `run` proposes before it needs a result. A metric that no trial would report
/// is a mistake, too. `inputs`: what is wrong with the data and weights that a recipe names.
void check_recipes(const SweepFile& sweep, const RecipeCheck& inputs = {});

/// A note if it is not known whether trials of `recipe` report the metric; otherwise empty.
std::string metric_note(const SweepFile& sweep, const Recipe& recipe);

/// A note if the budget ends the sweep before all trials of its method; otherwise empty.
std::string budget_note(const SweepFile& sweep);

/// A TOML recipe that `extends` the base, with `overrides` ("KEY=VALUE") and parameters on top.
std::string recipe_with(const std::string& base, const std::vector<std::string>& overrides,
                        const nlohmann::json& parameters);

}  // namespace runner::sweep
