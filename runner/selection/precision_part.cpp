#include "runner/selection/precision_part.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/config/key_table.hpp"
#include "runner/models/models.hpp"
#include "runner/plugins/ask_worker.hpp"
#include "runner/selection/batch.hpp"

namespace runner {

namespace {

using nlohmann::json;

const char* const precision_key = "plugins.precision";

json description_of(const PluginPaths& plugins) {
  return ask_about_part("--describe-precision", *plugins.precision, plugins.options, precision_key);
}

void report_contradiction(const Recipe& recipe, const std::string& at, const std::string& message,
                          std::vector<Diagnostic>& diagnostics) {
  diagnostics.push_back({.place = recipe.origin(at),
                         .code = "contradiction",
                         .message = message,
                         .other = recipe.origin(precision_key),
                         .other_message = "the plug-in is named here"});
}

void take_mode(Recipe& recipe, const std::string& mode, std::vector<Diagnostic>& diagnostics) {
  const auto& allowed = find_key("precision.mode")->choices;
  if (std::ranges::find(allowed, mode) == allowed.end()) {
    diagnostics.push_back({.place = recipe.origin(precision_key),
                           .code = "plugin",
                           .message = fmt::format("the plug-in asks for the precision mode \"{}\"", mode),
                           .allowed = allowed,
                           .suggestion = nearest(mode, allowed)});
    return;
  }
  if (mode == "auto") return;
  recipe.precision.mode = mode;
  recipe.origins["precision.mode"] = decided("the plug-in of plugins.precision");
}

}  // namespace

void resolve_precision_part(Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  const auto& plugins = recipe.plugins;
  if (!plugins.precision) return;
  const auto earlier = diagnostics.size();
  if (recipe.precision.mode != "auto")
    report_contradiction(recipe, "precision.mode",
                         fmt::format("precision.mode = \"{}\", and a plug-in decides the precision: remove one of them",
                                     recipe.precision.mode),
                         diagnostics);
  if (recipe.fine_tune.quantizes())
    report_contradiction(recipe, "fine_tune.quantization",
                         "a plug-in cannot convert parameters that are stored in 4 bits: use quantization = \"none\"",
                         diagnostics);
  if (diagnostics.size() > earlier) return;
  try {
    const auto facts = description_of(plugins);
    const auto bytes = [&](const char* name) {
      return facts.at(name).is_null() ? std::nullopt : std::optional<double>(facts.at(name).get<double>());
    };
    recipe.plugins.converted = {.patterns = facts.at("parameters").get<std::vector<std::string>>(),
                                .matrices_only = facts.at("matrices_only"),
                                .kept_bytes = bytes("kept_bytes"),
                                .working_bytes = bytes("working_bytes")};
    take_mode(recipe, facts.at("mode"), diagnostics);
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage) throw;
    const bool of_options = std::string_view(error.what()).starts_with("plugins.options");
    diagnostics.push_back({.place = recipe.origin(of_options ? "plugins.options" : precision_key),
                           .code = "plugin",
                           .message = error.what()});
  }
}

std::optional<std::set<std::string>> options_of_precision(const Recipe& recipe) {
  if (!recipe.plugins.precision) return std::set<std::string>();
  try {
    return description_of(recipe.plugins).at("asked").get<std::set<std::string>>();
  } catch (const Error&) {  // resolve_precision_part() reports it
    return std::nullopt;
  }
}

void check_converted_parameters(const Recipe& recipe, const ModelSpec& model, std::vector<Diagnostic>& diagnostics) {
  const auto& converted = recipe.plugins.converted;
  if (converted.patterns.empty() || model.converts()) return;
  diagnostics.push_back(
      {.place = recipe.origin(precision_key),
       .code = "no-match",
       .message = fmt::format("no {} of the model matches the patterns of the plug-in: {}",
                              converted.matrices_only ? "matrix" : "parameter", join(converted.patterns, ", ")),
       .allowed = parameter_names(model),
       .suggestion = nearest(converted.patterns.front(), parameter_names(model))});
}

}  // namespace runner
