#include "runner/commands/plugin_check.hpp"

#include "runner/commands/checkpoint_plugin.hpp"
#include "runner/devices/devices.hpp"
#include "runner/launch/cluster_plugin.hpp"
#include "runner/selection/precision_part.hpp"

namespace runner {

void check_plugins(const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  AskedOptions asked;
  const size_t before = diagnostics.size();
  const auto look = [&](const std::optional<std::string>& path, auto&& open) {
    if (!path) return;
    try {
      open();
    } catch (const RecipeError& error) {
      diagnostics.insert(diagnostics.end(), error.diagnostics().begin(), error.diagnostics().end());
    }
  };
  look(recipe.plugins.cluster_environment, [&] { open_cluster_plugin(recipe, process_environment(), asked); });
  asked.add(check_checkpoint_io(recipe, diagnostics));
  std::optional<std::set<std::string>> of_accelerator = std::set<std::string>();
  look(recipe.plugins.accelerator, [&] { of_accelerator = options_of_accelerator(recipe); });
  const auto of_precision = options_of_precision(recipe);
  if (diagnostics.size() > before || !of_precision || !of_accelerator) return;  // not all options are known
  asked.add(*of_precision);
  asked.add(*of_accelerator);
  try {
    asked.check(recipe.plugins.options, "plugins.options");
  } catch (const Error& error) {
    diagnostics.push_back({.place = recipe.origin("plugins.options"),
                           .code = "unknown-option",
                           .message = error.what(),
                           .section = "plugins"});
  }
}

void refuse_bad_plugins(const Recipe& recipe) {
  const auto& plugins = recipe.plugins;
  if (!plugins.cluster_environment && !plugins.checkpoint_io && !plugins.accelerator) return;
  std::vector<Diagnostic> diagnostics;
  check_plugins(recipe, diagnostics);
  if (!diagnostics.empty()) throw RecipeError(std::move(diagnostics));
}

}  // namespace runner
