#include "runner/commands/check_hook.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "runner/base/log.hpp"
#include "runner/base/metric_text.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/script_lines.hpp"
#include "runner/commands/tiny_training.hpp"
#include "runner/config/config.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/lua/hook_set.hpp"
#include "runner/lua/known_metrics.hpp"
#include "runner/selection/strategy_options.hpp"

namespace runner {

using nlohmann::json;

namespace {

/// A second hook, which ends the training with an error, so that on_exception is called.
const char* const failing_hook = "return {on_train_batch_end = function() error('an error, as a test') end}";

/// The recipe, or an empty one, with this hook as the only hook, and the recipe's options for it.
Recipe recipe_for(const std::string& file, const std::string& recipe_file) {
  Recipe recipe;
  if (!recipe_file.empty()) recipe = load_whole_recipe(recipe_file, {});
  recipe.hooks.files = {file};
  recipe.hooks.on_error = "stop";
  recipe.train.early_stopping.reset();
  recipe.origins.erase("hooks.files");
  std::vector<Diagnostic> diagnostics;
  lua::State state;
  auto hook = lua::load_hook_file(state, {file, {}}, diagnostics);
  if (!hook) throw RecipeError(diagnostics);
  auto options = recipe.hooks.options.value(hook->name, json::object());
  recipe.hooks.options = json::object();
  if (!options.empty()) recipe.hooks.options[hook->name] = options;
  return recipe;
}

void describe(const lua::HookSet::Hook& hook) {
  std::printf("hook %s%s\n", hook.file.name.c_str(), hook.file.about.empty() ? "" : (": " + hook.file.about).c_str());
  for (const auto& option : hook.file.options)
    std::printf(
        "  %s = %s%s\n", option.name.c_str(),
        hook.option_values.contains(option.name) ? toml_value(hook.option_values[option.name]).c_str() : "(unset)",
        option.help.empty() ? "" : ("  # " + option.help).c_str());
  std::fflush(stdout);
}

/// Continues the training with a second hook that fails, so that on_exception is called. Returns whether the hook's on_exception
/// failed, or another error than that of the second hook happened.
bool fails_in_exception(TinyTraining& training, const std::string& hook, int64_t steps) {
  const auto failing = (training.folder() / "error_of_the_check.lua").string();
  write_file_atomic(failing, failing_hook);
  bool expected = false, failed = false;
  const int code =
      training.train(steps, {"hooks.files=" + json{training.script(), failing}.dump()}, [&](const std::string& line) {
        if (line.find(fmt::format("hook {} failed in on_exception", hook)) != std::string::npos) failed = true;
        const bool ours = line.find("error, as a test") != std::string::npos && line.starts_with("error: ");
        expected |= ours;
        return ours;
      });
  return failed || (code != 0 && !expected);
}

/// Prints how often each function of the hook was called, and the metrics. Returns the functions that were not called.
std::vector<std::string> describe_calls(const TinyTraining& training, const lua::HookSet::Hook& hook) {
  std::map<std::string, int64_t> calls;
  Ledger ledger(training.home(), Ledger::Mode::read);
  const auto run = ledger.find_run("last");
  const json shown = ledger.show(run);
  for (const auto& event : shown.at("events"))
    if (event.at("event") == "hook" && event.at("hook") == hook.file.name)
      for (const auto& [function, count] : event.at("calls").items()) calls[function] += count.get<int64_t>();
  std::vector<std::string> missing, functions(lua::moment_names().begin(), lua::moment_names().end());
  functions.push_back("loss");
  for (const auto& name : functions) {
    if (!hook.file.functions.contains(name)) continue;
    if (calls[name] > 0)
      std::printf("%s: %s\n", name.c_str(), counted(calls[name], "call").c_str());
    else
      missing.push_back(name);
  }
  for (const auto& name : ledger.metric_names(run)) {
    const auto& own = lua::trainer_metrics();
    if (std::find(own.begin(), own.end(), name) != own.end()) continue;
    const auto points = ledger.points(run, name);
    const auto [step, value] = points.back();
    std::printf("  log %s = %s at step %lld, %s\n", name.c_str(), exact_metric_text(value).c_str(),
                static_cast<long long>(step), counted(static_cast<int64_t>(points.size()), "value").c_str());
  }
  for (const auto& artifact : shown.at("artifacts"))
    if (artifact.at("kind") == "artifact")
      std::printf("  artifact %s\n", fs::path(artifact.at("path").get<std::string>()).filename().c_str());
  std::fflush(stdout);
  return missing;
}

}  // namespace

ExitCode check_hook(const std::string& file, const std::string& recipe_file) {
  const Recipe given = recipe_for(file, recipe_file);
  lua::HookSet hooks(given);
  const auto& hook = hooks.hooks().front();
  describe(hook);
  if (auto known = lua::known_metrics(given); !known.mistake.empty()) throw Error(ExitCode::run_failed, known.mistake);
  TinyTraining training(file);
  training.recipe.hooks = given.hooks;
  training.recipe.hooks.files = {training.script()};
  training.recipe.strategy.name = "fsdp";
  const int64_t steps = steps_to_train(hook.file.options, hook.option_values, 6);
  int code = training.train(steps);
  if (code != 0) return static_cast<ExitCode>(code);
  const int64_t before = training.steps_done();
  code = training.train(2 * steps);
  if (code != 0) return static_cast<ExitCode>(code);
  const int64_t after = training.steps_done() - before;
  const bool failed =
      hook.file.functions.contains("on_exception") && fails_in_exception(training, hook.file.name, 2 * steps + 1);
  const auto missing = describe_calls(training, hook);
  const auto lines = describe_lines(training);
  if (failed) return ExitCode::run_failed;
  const auto trained =
      fmt::format("two ranks trained {} with it, stopped, and continued from the checkpoint for {} more",
                  counted(before, "step"), after);
  if (missing.empty() && lines.everything)
    log::info("{} is fine: {}; {}", file, lines.text, trained);
  else
    log::info("{} has no error in what ran; {}{}; {}", file,
              missing.empty() ? "" : "not called: " + join(missing, ", ") + "; ", lines.text, trained);
  return ExitCode::done;
}

}  // namespace runner
