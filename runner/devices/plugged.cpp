// The devices of plugins.accelerator, as its library describes them in a process of its own.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/config/plugged_accelerator.hpp"
#include "runner/devices/devices.hpp"
#include "runner/plugins/ask_worker.hpp"

namespace runner {

namespace {

using nlohmann::json;

const char* const accelerator_key = "plugins.accelerator";

json description_of(const Recipe& recipe) {
  try {
    return ask_about_part("--describe-accelerator", *recipe.plugins.accelerator, recipe.plugins.options,
                          accelerator_key);
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage) throw;
    const bool of_options = std::string_view(error.what()).find("the option `") != std::string_view::npos ||
                            std::string_view(error.what()).starts_with("plugins.options");
    throw RecipeError({{.place = recipe.origin(of_options ? "plugins.options" : accelerator_key),
                        .code = "plugin",
                        .message = error.what(),
                        .section = "plugins"}});
  }
}

/// devices.accelerator and the plug-in would both say what ranks compute on.
void refuse_contradiction(const Recipe& recipe) {
  if (recipe.devices.accelerator == "auto") return;
  throw RecipeError(
      {{.place = recipe.origin("devices.accelerator"),
        .code = "contradiction",
        .message = fmt::format("devices.accelerator = \"{}\", and a plug-in gives the devices: remove one of them",
                               recipe.devices.accelerator),
        .other = recipe.origin(accelerator_key),
        .other_message = "the plug-in is named here"}});
}

/// The devices in RUNNER_VISIBLE_DEVICES, which a sweep sets for its trials; without it, all.
std::vector<int> visible_indices(int count) {
  std::vector<int> indices;
  const char* listed = std::getenv("RUNNER_VISIBLE_DEVICES");
  if (!listed) {
    indices.resize(static_cast<size_t>(count));
    std::iota(indices.begin(), indices.end(), 0);
    return indices;
  }
  for (const auto& word : split(listed, ',')) {
    const int index = parse_number<int>(word).value_or(-1);
    if (index < 0 || index >= count || std::ranges::find(indices, index) != indices.end())
      throw environment_error(
          "RUNNER_VISIBLE_DEVICES is \"{}\"; it must list different devices of plugins.accelerator, which are {}",
          listed,
          count == 0   ? "none"
          : count == 1 ? "0"
                       : fmt::format("0 to {}", count - 1));
    indices.push_back(index);
  }
  return indices;
}

}  // namespace

Facts facts_for(const Recipe& recipe) {
  Facts facts = read_facts();
  if (!recipe.plugged_devices()) return facts;
  refuse_contradiction(recipe);
  const json stated = description_of(recipe);
  facts.accelerator = plugged_accelerator(stated);
  facts.plugged = true;
  facts.cuda_problem.clear();
  facts.devices.clear();
  const json& devices = stated.at("devices");
  for (const int index : visible_indices(static_cast<int>(devices.size()))) {
    const json& device = devices.at(static_cast<size_t>(index));
    facts.devices.push_back({.index = static_cast<int>(facts.devices.size()),
                             .name = device.at("name"),
                             .memory_bytes = device.at("memory_bytes"),
                             .free_bytes = device.at("free_bytes"),
                             .stated_bf16 = device.at("bf16").get<bool>(),
                             .library_index = index});
  }
  return facts;
}

std::optional<std::set<std::string>> options_of_accelerator(const Recipe& recipe) {
  if (!recipe.plugins.accelerator) return std::set<std::string>();
  if (!recipe.plugged_devices()) return std::nullopt;
  return description_of(recipe).at("asked").get<std::set<std::string>>();
}

}  // namespace runner
