// `runner print`: prints a recipe with all defaults.
#include <cstdio>
#include <memory>

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/config/config.hpp"
#include "runner/import/deepspeed_config.hpp"
#include "runner/selection/batch.hpp"
#include "runner/selection/strategy_options.hpp"

namespace runner {

namespace {

/// Notes on what DeepSpeed does not read from the configuration as the recipe means it.
void note_open_values(const nlohmann::json& configuration) {
  std::vector<std::string> automatic;
  const auto flat = configuration.flatten();
  for (const auto& [pointer, value] : flat.items())
    if (value == "auto") automatic.push_back(join(split(pointer.substr(1), '/'), "."));
  if (!automatic.empty())
    log::info("\"auto\" is for Transformers and Lightning; DeepSpeed itself needs values: {}", join(automatic, ", "));
  if (!configuration.contains("train_micro_batch_size_per_gpu") &&
      !configuration.contains("gradient_accumulation_steps"))
    log::info(
        "the recipe leaves the micro-batch open, and DeepSpeed will not accumulate; train.micro_batch_size sets it");
}

std::string as_deepspeed(Recipe recipe) {
  std::vector<Diagnostic> diagnostics;
  auto resolved = resolve_strategy(recipe, diagnostics);
  if (!resolved.entry || resolved.entry->name != "zero")
    throw usage_error("strategy \"{}\" is not one of DeepSpeed's; `--as deepspeed` needs zero or one of its aliases",
                      recipe.strategy.name);
  // Without a global batch, the number of ranks does not matter.
  const auto& train = recipe.train;
  if (!train.global_batch_size && train.micro_batch_size != Recipe::automatic) resolve_batch(recipe, {}, diagnostics);
  auto text = recipe_as_deepspeed(recipe, with_defaults(resolved.entry->options, resolved.options));
  note_open_values(nlohmann::json::parse(text));
  return text;
}

}  // namespace

Action setup_print(CLI::App& app) {
  auto file = std::make_shared<std::string>();
  auto overrides = std::make_shared<std::vector<std::string>>();
  auto format = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false), origins = std::make_shared<bool>(false);
  add_recipe_option(app, *file);
  add_overrides(app, *overrides);
  app.add_flag("--origins", *origins, "Where each value came from, as comments");
  add_json_option(app, *json);
  app.add_option("--as", *format,
                 "deepspeed: as a configuration file of DeepSpeed; \"auto\" in it is for Transformers and Lightning")
      ->check(CLI::IsMember({"deepspeed"}));
  return [=] {
    Recipe recipe = load_whole_recipe(*file, *overrides);
    if (*format == "deepspeed")
      std::printf("%s", as_deepspeed(recipe).c_str());
    else if (*json)
      std::printf(
          "%s\n",
          nlohmann::json{{"schema", 1}, {"config", recipe_to_json(recipe)}, {"origins", origins_to_json(recipe)}}
              .dump(2)
              .c_str());
    else
      std::printf("%s", print_recipe(recipe, *origins ? PrintOrigins::yes : PrintOrigins::no).c_str());
    return ExitCode::done;
  };
}

}  // namespace runner
