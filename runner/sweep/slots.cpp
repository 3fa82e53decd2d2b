#include "runner/sweep/slots.hpp"

#include <algorithm>
#include <cstdlib>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/config/mesh_sizes.hpp"
#include "runner/selection/mesh_plan.hpp"

namespace runner::sweep {

namespace {

std::vector<Slot> cpu_slots(const Recipe& recipe, const Facts& facts, std::optional<int> parallel, int ranks) {
  int count = parallel.value_or(std::max(1, facts.cores / std::max(1, ranks)));
  std::vector<Slot> slots;
  for (int i = 0; i < count; ++i) {
    Slot slot{fmt::format("cpu:{}", i), {}, {}};
    if (count > 1 && !recipe.devices.threads_per_rank)
      slot.overrides.push_back(
          fmt::format("devices.threads_per_rank={}", std::max(1, facts.cores / (count * std::max(1, ranks)))));
    slots.push_back(std::move(slot));
  }
  return slots;
}

/// The name of this process's device `index` for the CUDA_VISIBLE_DEVICES of a child.
std::string visible_name(int index) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!visible || !*visible) return std::to_string(index);
  auto names = split(visible, ',');
  return static_cast<size_t>(index) < names.size() ? names[static_cast<size_t>(index)] : std::to_string(index);
}

/// All devices that the recipe's kind of request may use.
std::vector<int> usable(Recipe::Devices devices, const Facts& facts) {
  devices.devices.count = -1;
  return choose_devices(devices, facts).device_indices;
}

/// `least`: devices that a trial needs if the recipe does not say how many it uses.
std::vector<Slot> accelerator_slots(const Recipe::Devices& devices, const Facts& facts, std::optional<int> parallel,
                                    int least) {
  const auto& request = devices.devices;
  const bool open = request.kind == DeviceRequest::Kind::automatic,
             free = request.kind == DeviceRequest::Kind::free_count;
  const std::vector<int> indices = usable(devices, facts);
  const auto available = static_cast<int>(indices.size());
  const int each = open                ? (parallel ? std::max(least, available / *parallel) : least)
                   : request.count < 0 ? available
                                       : request.count;
  const int count = parallel.value_or(std::max(1, available / each));
  if (count * each > available)
    throw usage_error("parallel = {} trials with {} each need {}, and there are {}{}: {}", count,
                      counted(each, facts.accelerator.noun()), count * each, available, free ? " free" : "",
                      list_devices(facts));
  std::vector<Slot> slots;
  for (int i = 0; i < count; ++i) {
    std::vector<std::string> names, visible;
    for (int k = 0; k < each; ++k) {
      int index = indices[static_cast<size_t>(i * each + k)];
      names.push_back(std::to_string(facts.plugged ? facts.devices[static_cast<size_t>(index)].library_index : index));
      visible.push_back(facts.plugged ? names.back() : visible_name(index));
    }
    const char* variable = facts.plugged ? "RUNNER_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES";
    Slot slot{fmt::format("{}:{}", facts.accelerator.type, join(names, ",")), {{variable, join(visible, ",")}}, {}};
    if (free)  // free devices are searched here, once for all trials
      slot.overrides.push_back(fmt::format("devices.devices={}", each));
    slots.push_back(std::move(slot));
  }
  return slots;
}

}  // namespace

std::vector<Slot> device_slots(const Recipe& recipe, const Facts& facts, std::optional<int> parallel) {
  const auto devices = recipe.devices.simulate ? devices_of(recipe) : devices_of(recipe, facts.devices.size());
  if (recipe.devices.simulate)
    return cpu_slots(recipe, facts, parallel, simulated_devices(devices) * static_cast<int>(devices.num_nodes));
  if (recipe.devices.elastic())
    throw usage_error(
        "trials of a sweep run on this node only, but the recipe is for an elastic run of {} to {} nodes: remove "
        "devices.min_nodes and devices.max_nodes",
        recipe.devices.least_nodes(), recipe.devices.most_nodes());
  if (recipe.devices.num_nodes > 1)
    throw usage_error("trials of a sweep run on this node only, but the recipe has devices.num_nodes = {}",
                      recipe.devices.num_nodes);
  DeviceChoice choice = choose_devices(devices, facts);
  if (!choice.accelerator.own_memory) return cpu_slots(recipe, facts, parallel, choice.count);
  if (devices.devices.kind != DeviceRequest::Kind::indices)
    return accelerator_slots(devices, facts, parallel,
                             std::max(1, static_cast<int>(given_mesh(recipe).ranks_of_data())));
  if (parallel.value_or(1) > 1)
    throw usage_error(
        "the recipe names its devices by index, so only one trial can run at a time; give their number "
        "instead (devices = {})",
        choice.count);
  return {{fmt::format("{}:{}", facts.accelerator.type, fmt::join(choice.device_indices, ",")), {}, {}}};
}

}  // namespace runner::sweep
