// `runner lua`: checks a hook or a strategy in Lua.
#include <cstdio>
#include <memory>

#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/commands/check_strategy.hpp"
#include "runner/commands/command.hpp"
#include "runner/config/config.hpp"
#include "runner/lua/fake_training.hpp"
#include "runner/selection/strategy_options.hpp"

namespace runner {

namespace {

void say(std::string_view line) { std::printf("%.*s\n", static_cast<int>(line.size()), line.data()); }

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
  auto options = recipe.hooks.options.value(hook->name, nlohmann::json::object());
  recipe.hooks.options = nlohmann::json::object();
  if (!options.empty()) recipe.hooks.options[hook->name] = options;
  return recipe;
}

void describe(const lua::HookSet::Hook& hook) {
  say(fmt::format("hook {}{}", hook.file.name, hook.file.about.empty() ? "" : ": " + hook.file.about));
  for (const auto& [name, option] : hook.file.options)
    say(fmt::format("  {} = {}{}", name,
                    hook.option_values.contains(name) ? toml_value(hook.option_values[name]) : "(unset)",
                    option.help.empty() ? "" : "  # " + option.help));
}

ExitCode check(const std::string& file, const std::string& recipe_file) {
  Recipe recipe = recipe_for(file, recipe_file);
  lua::HookSet::Talk talk;
  talk.print = [](std::string_view line) { say("  print " + std::string(line)); };
  lua::HookSet hooks(recipe, talk);
  describe(hooks.hooks().front());
  lua::FakeTraining training(hooks.state(), recipe, say);
  training.run(hooks);
  log::info("{} is fine: every function of it ran", file);
  return ExitCode::done;
}

}  // namespace

Action setup_lua(CLI::App& app) {
  auto verb = std::make_shared<std::string>(), file = std::make_shared<std::string>(),
       recipe = std::make_shared<std::string>();
  app.add_option("verb", *verb, "check: runs a hook in a simulated training, or trains two ranks with a strategy")
      ->required()
      ->check(CLI::IsMember({"check"}));
  app.add_option("file", *file, "The file of a hook or a strategy, or the name of a shipped one")->required();
  app.add_option("--recipe", *recipe, "Use the options and limits of this recipe");
  return [=, kept = verb] {  // keeps `verb` alive: the option is bound to it
    if (file->ends_with(".lua") && !fs::exists(*file)) throw usage_error("there is no file {}", *file);
    return is_script_strategy(*file) ? check_strategy(*file, *recipe) : check(*file, *recipe);
  };
}

}  // namespace runner
