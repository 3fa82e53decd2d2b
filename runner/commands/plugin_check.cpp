#include "runner/commands/plugin_check.hpp"

#include "runner/commands/checkpoint_plugin.hpp"
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
  const auto of_precision = options_of_precision(recipe);
  if (diagnostics.size() > before || !of_precision) return;  // not all options are known
  asked.add(*of_precision);
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
  if (!recipe.plugins.cluster_environment && !recipe.plugins.checkpoint_io) return;
  std::vector<Diagnostic> diagnostics;
  check_plugins(recipe, diagnostics);
  if (!diagnostics.empty()) throw RecipeError(std::move(diagnostics));
}

}  // namespace runner
