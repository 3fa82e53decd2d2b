// Tiny runs with strategies and comm hooks in Lua.
#pragma once
#include "runner/selection/script_strategy.hpp"
#include "runner/train/strategies/script.hpp"
#include "tests/support/tiny_training.hpp"

namespace runner::testing {

/// A run with a Lua strategy. `name` is its name in a recipe ("lua:topk", "lua:/path/mine.lua").
inline TinyRun script_run(const std::string& name, const nlohmann::json& options = nlohmann::json::object(),
                          const std::function<void(Recipe&)>& change = {}) {
  Recipe recipe;
  recipe.strategy.name = name;
  recipe.strategy.options = options;
  if (change) change(recipe);
  std::vector<Diagnostic> diagnostics;
  learn_script_strategy(recipe, diagnostics);
  if (!diagnostics.empty()) throw RecipeError(diagnostics);
  TinyRun run;
  run.strategy = name;
  run.options = options;
  run.make = [recipe](StrategySetup setup) { return make_script_strategy(recipe, std::move(setup)); };
  return run;
}

/// A run with ddp and a comm hook.
inline TinyRun hook_run(const std::string& hook, const nlohmann::json& hook_options = nlohmann::json::object(),
                        nlohmann::json options = nlohmann::json::object()) {
  Recipe recipe;
  recipe.strategy.name = "ddp";
  options["ddp_comm_hook"] = hook;
  options["ddp_comm_hook_options"] = hook_options;
  recipe.strategy.options = options;
  TinyRun run;
  run.strategy = "ddp";
  run.options = options;
  run.make = [recipe](StrategySetup setup) {
    setup.reducer = make_script_comm_hook(recipe, setup.world);
    return make_strategy("ddp", std::move(setup));
  };
  return run;
}

}  // namespace runner::testing
