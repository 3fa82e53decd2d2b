#include "runner/commands/check_strategy.hpp"

#include <cstdio>

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/script_lines.hpp"
#include "runner/commands/tiny_training.hpp"
#include "runner/config/config.hpp"
#include "runner/launch/rank_logs.hpp"
#include "runner/lua/hook_file.hpp"
#include "runner/lua/strategy_file.hpp"
#include "runner/selection/plan.hpp"
#include "runner/selection/script_strategy.hpp"
#include "runner/selection/strategy_options.hpp"

namespace runner {

namespace {

/// Takes the script limits of `recipe_file`, and its strategy options if it uses the same strategy.
void use_strategy(Recipe& recipe, const std::string& name, const std::string& recipe_file) {
  recipe.strategy.name = name;
  if (recipe_file.empty()) return;
  Recipe given = load_whole_recipe(recipe_file, {});
  if (given.strategy.name == name) recipe.strategy.options = given.strategy.options;
  recipe.hooks = given.hooks;
  recipe.hooks.files.clear();
  recipe.hooks.options = nlohmann::json::object();
}

void describe(const Entry& entry, const Recipe& recipe) {
  std::printf("strategy %s: %s\n", recipe.strategy.name.c_str(), entry.summary.c_str());
  Topology topology;
  topology.devices_per_node = 2;
  topology.cores = 2;
  Plan plan = make_plan(recipe, topology, 256);
  if (memory_known(entry))
    std::printf("  memory of %s parameters: %s a rank\n", format_parameters(plan.model->parameter_count()).c_str(),
                format_bytes(plan.memory.total()).c_str());
  for (const auto& part : plan.traffic)
    std::printf("  traffic of a step: %lld x %s, %s\n", static_cast<long long>(part.calls), part.collective.c_str(),
                format_bytes(part.payload_bytes).c_str());
  for (const auto& note : plan.notes) std::printf("  %s\n", note.c_str());
  std::fflush(stdout);
}

/// Prints the log of rank 0, which contains the output of the script.
void show_prints(const TinyTraining& training) {
  std::error_code none;
  for (const auto& run : fs::directory_iterator(fs::path(training.home()) / "runs", none)) {
    RankLogReader(0, run.path() / "logs" / "rank-0.log")
        .read(
            [](const RankLogLine& line) {
              if (!line.text.empty()) std::printf("  rank 0: %s\n", line.text.c_str());
            },
            /*to_end=*/true);
  }
}

}  // namespace

bool is_script_strategy(const std::string& file) {
  if (lua::names_script(file)) return true;
  if (!file.ends_with(".lua")) return !lua::shipped_hooks().contains(file) && lua::shipped_strategies().contains(file);
  lua::State state;
  try {
    auto returned = state.load_file(file).reference;
    if (!returned.is_table()) return false;
    const auto& kind = lua::strategy_kind();
    for (const auto& key : state.keys(returned))
      for (const auto* names : {&kind.functions, &kind.fields})
        for (const auto& name : *names)
          if (key == name && key != "setup" && key != "memory") return true;  // hooks also have these two
  } catch (const Error&) {
    return false;  // the caller loads it as a hook, which reports the error
  }
  return false;
}

ExitCode check_strategy(const std::string& given, const std::string& recipe_file) {
  const auto file = lua::names_script(given) ? given.substr(given.find(':') + 1) : given;
  TinyTraining training(file);
  Recipe& recipe = training.recipe;
  use_strategy(recipe, "lua:" + training.script(), recipe_file);
  std::vector<Diagnostic> diagnostics;
  const Entry* entry = learn_script_strategy(recipe, diagnostics);
  if (!diagnostics.empty()) throw RecipeError(diagnostics);
  describe(*entry, recipe);
  const int64_t steps = steps_to_train({entry->options.begin(), entry->options.end()}, recipe.strategy.options, 3);
  int code = training.train(steps);
  if (code == 0) code = training.train(2 * steps);
  show_prints(training);
  if (code != 0) return static_cast<ExitCode>(code);
  const auto lines = describe_lines(training);
  log::info("{} {}{}; two ranks trained {} steps with it, stopped, and continued from the checkpoint for {} more", file,
            lines.everything ? "is fine: " : "has no error in what ran; ", lines.text, steps, steps);
  return ExitCode::done;
}

}  // namespace runner
