// The devices of plugins.accelerator, as its library describes them in a process of its own.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/devices/devices.hpp"
#include "runner/plugins/ask_worker.hpp"
#include "runner/plugins/library.hpp"

namespace runner {

namespace {

using nlohmann::json;

const char* const accelerator_key = "plugins.accelerator";

/// Asks once for each state of the library and each set of options.
json accelerator_description(const json& request) {
  static std::mutex mutex;
  static std::map<std::string, json> known;
  const std::string library = request.at("plugin");
  check_library_file(library, accelerator_key);
  const std::string key = request.dump() + xxh3_hex(MappedFile(library).bytes());
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  return known.emplace(key, ask_worker("--describe-accelerator", request, accelerator_key)).first->second;
}

json description_of(const Recipe& recipe) {
  try {
    return accelerator_description({{"plugin", *recipe.plugins.accelerator}, {"options", recipe.plugins.options}});
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

/// Another accelerator cannot be asked for beside the plug-in's.
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
    int index = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), index);
    const bool number = error == std::errc() && end == word.data() + word.size();
    if (!number || index < 0 || index >= count || std::ranges::find(indices, index) != indices.end())
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
  facts.accelerator = {.type = stated.at("type"),
                       .own_memory = true,
                       .streams = stated.at("streams"),
                       .pinned = stated.at("pinned"),
                       .host_kernels = false,
                       .collectives = stated.at("collectives"),
                       .workspace_bytes = stated.at("workspace_bytes"),
                       .context_bytes = stated.at("context_bytes"),
                       .communicator_bytes = stated.at("communicator_bytes")};
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
