// `runner print`.
#include <cstdio>
#include <memory>

#include "runner/commands/command.hpp"
#include "runner/config/config.hpp"
#include "runner/selection/strategy_options.hpp"

namespace runner {

Action setup_print(CLI::App& app) {
  auto file = std::make_shared<std::string>();
  auto overrides = std::make_shared<std::vector<std::string>>();
  auto json = std::make_shared<bool>(false), origins = std::make_shared<bool>(false);
  app.add_option("recipe", *file, "The recipe, a TOML file")->required();
  app.add_option("--set", *overrides, "KEY=VALUE: override a value of the recipe")->allow_extra_args(false);
  app.add_flag("--origins", *origins, "Where each value came from, as comments");
  app.add_flag("--json", *json, "As JSON");
  return [=] {
    Recipe recipe = load_whole_recipe(*file, *overrides);
    if (*json)
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
