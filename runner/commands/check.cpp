// `runner check`.
#include <cstdio>
#include <memory>

#include "runner/base/log.hpp"
#include "runner/commands/command.hpp"
#include "runner/config/config.hpp"
#include "runner/selection/strategy_options.hpp"

namespace runner {

Action setup_check(CLI::App& app) {
  auto file = std::make_shared<std::string>();
  auto overrides = std::make_shared<std::vector<std::string>>();
  auto json = std::make_shared<bool>(false);
  app.add_option("recipe", *file, "The recipe, a TOML file")->required();
  app.add_option("--set", *overrides, "KEY=VALUE: override a value of the recipe")->allow_extra_args(false);
  app.add_flag("--json", *json, "As JSON on stdout");
  return [file, overrides, json] {
    std::vector<Diagnostic> diagnostics;
    std::vector<std::string> notes;
    try {
      notes = load_whole_recipe(*file, *overrides).notes;
    } catch (const RecipeError& error) {
      diagnostics = error.diagnostics();
    }
    if (*json) {
      auto errors = nlohmann::json::array();
      for (const auto& diagnostic : diagnostics) errors.push_back(to_json(diagnostic));
      std::printf("%s\n",
                  nlohmann::json{{"schema", 1}, {"ok", diagnostics.empty()}, {"errors", errors}}.dump().c_str());
      return diagnostics.empty() ? ExitCode::done : ExitCode::usage;
    }
    if (!diagnostics.empty()) throw RecipeError(diagnostics);
    for (const auto& note : notes) log::info("note: {}", note);
    log::info("{} is fine", *file);
    return ExitCode::done;
  };
}

}  // namespace runner
