// Compares the recipe's devices with the launcher and the machine.
#include "runner/commands/place.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/devices/devices.hpp"
#include "runner/launch/cluster_plugin.hpp"
#include "runner/selection/mesh_plan.hpp"

namespace runner {

namespace {

/// Whether the user requests `key` now. In the recipe file of a resumed run, it is the earlier value, and the launcher may
/// now start another number of ranks.
bool asked(const Recipe& recipe, const std::string& key, bool resuming) {
  const auto kind = recipe.origin(key).kind;
  return kind == Origin::Kind::set || (kind == Origin::Kind::file && !resuming);
}

/// The number of devices per node that check_placement() compares with the launcher's; 0 = the launcher decides.
int asked_devices(const Recipe& recipe, const DeviceChoice& choice, bool resuming) {
  const DeviceRequest& request = recipe.devices.devices;
  if (asked(recipe, "devices.devices", resuming) && request.kind != DeviceRequest::Kind::automatic)
    return request.kind == DeviceRequest::Kind::count ? std::max(0, request.count) : choice.count;
  bool by_processes = !choice.accelerator.own_memory && asked(recipe, "devices.cpu_processes", resuming);
  return by_processes ? static_cast<int>(recipe.devices.cpu_processes) : 0;
}

/// The device of this rank. A launcher makes either all devices of the node visible to each rank, or only the rank's device.
int launched_device(const Placement& placement, const Accelerator& accelerator, const std::vector<int>& visible) {
  if (visible.size() == 1) return visible.front();
  if (visible.size() < static_cast<size_t>(placement.local_size))
    throw environment_error(
        "{} started {} ranks on this node, but rank {} sees {} {}s{}: start one rank for each device",
        placement.cluster, placement.local_size, placement.rank, visible.size(), accelerator.noun(),
        accelerator.is_cuda() ? " (CUDA_VISIBLE_DEVICES)" : "");
  return visible[static_cast<size_t>(placement.local_rank)];
}

/// Sets the properties that plans need: the minimum over the chosen devices.
void describe_devices(Topology& topology, const Facts& facts, const std::vector<int>& indices) {
  topology.bf16 = topology.on_devices();
  topology.host_memory_bytes = facts.memory_bytes;
  bool first = true;
  for (const auto& device : facts.devices) {
    if (std::find(indices.begin(), indices.end(), device.index) == indices.end()) continue;
    topology.bf16 = topology.bf16 && device.bf16();
    const DeviceKind* kind = kind_of_device(device.name);
    topology.kind = first || topology.kind == kind ? kind : nullptr;
    topology.device_memory_bytes =
        first ? device.memory_bytes : std::min(topology.device_memory_bytes, device.memory_bytes);
    first = false;
  }
}

DeviceChoice choose_devices_here(const Recipe& recipe, const Facts& facts, const Placement& placement) {
  Recipe::Devices wanted = devices_of(recipe, facts.devices.size());
  bool count = wanted.devices.kind == DeviceRequest::Kind::count;
  if (placement.launched && count && wanted.accelerator != "tpu")
    wanted.devices = {};  // check_placement() checks the count; this rank may see only its own device
  return choose_devices(wanted, facts);
}

/// CPU ranks of this machine in the place of the recipe's devices.
Topology simulated_topology(const Recipe& recipe, const Facts& facts) {
  if (recipe.selection.policy == "fastest" && recipe.strategy.name == "auto")
    throw usage_error(
        "selection.policy = \"fastest\" needs the speed of the devices, which devices.simulate does not have: name a "
        "strategy, or remove one of the two keys");
  Topology topology;
  topology.simulated = true;
  topology.devices_per_node = simulated_devices(devices_of(recipe));
  topology.num_nodes = static_cast<int>(recipe.devices.num_nodes);
  topology.cores = facts.cores;
  topology.device_reason =
      fmt::format("devices.simulate: {} on this machine stand for {} of {}", counted(topology.world_size(), "CPU rank"),
                  counted(topology.num_nodes, "node"), counted(topology.devices_per_node, "device"));
  describe_devices(topology, facts, {});
  return topology;
}

/// find_place() of a recipe with devices.simulate.
Place simulated_place(const Recipe& recipe, const LaunchOptions& options, Placement placement) {
  if (placement.launched)
    throw usage_error(
        "devices.simulate starts all ranks with one command, but {} has started this one: start it without "
        "a launcher, or remove devices.simulate",
        placement.cluster);
  if (options.node.node_rank || options.node.master_addr || options.node.master_port)
    throw usage_error(
        "devices.simulate starts the ranks of all nodes, so --node-rank, --master-addr and --master-port do not apply");
  Place place;
  place.topology = simulated_topology(recipe, read_facts());
  placement.simulated = true;
  placement.num_nodes = place.topology.num_nodes;
  placement.local_size = place.topology.devices_per_node;
  placement.world_size = place.topology.world_size();
  place.placement = placement;
  return place;
}

}  // namespace

Topology topology_here(const Recipe& recipe, const Facts& facts) {
  if (recipe.devices.simulate) return simulated_topology(recipe, facts);
  DeviceChoice choice = choose_devices(devices_of(recipe, facts.devices.size()), facts);
  Topology topology;
  topology.accelerator = choice.accelerator;
  topology.pjrt_devices = has_pjrt_devices(recipe);
  topology.devices_per_node = choice.count;
  topology.num_nodes = static_cast<int>(recipe.devices.num_nodes);
  topology.device_indices = choice.device_indices;
  topology.cores = facts.cores;
  topology.device_reason = choice.reason;
  describe_devices(topology, facts, choice.device_indices);
  return topology;
}

Place find_place(const Recipe& recipe, const LaunchOptions& options) {
  Place place;
  auto& placement = place.placement;
  placement = find_placement(recipe, process_environment());
  if (recipe.devices.simulate) return simulated_place(recipe, options, placement);
  Facts facts = facts_for(recipe);
  DeviceChoice choice = choose_devices_here(recipe, facts, placement);
  const auto num_nodes = static_cast<int>(recipe.devices.num_nodes);
  const auto apply = recipe.devices.elastic() ? apply_elastic_options : apply_node_options;
  apply(placement, options.node, choice.count, num_nodes);
  bool resuming = !options.resume_run.empty();
  check_placement(placement, asked_devices(recipe, choice, resuming),
                  asked(recipe, "devices.num_nodes", resuming) ? num_nodes : 0);
  if (placement.launched && choice.accelerator.own_memory)
    place.device_indices = {launched_device(placement, choice.accelerator, choice.device_indices)};
  else
    place.device_indices = choice.device_indices;
  if (facts.plugged)
    for (int& index : place.device_indices) index = facts.devices[static_cast<size_t>(index)].library_index;

  auto& topology = place.topology;
  topology.accelerator = choice.accelerator;
  topology.pjrt_devices = has_pjrt_devices(recipe);
  describe_devices(topology, facts, choice.device_indices);
  if (choice.count == placement.local_size) topology.device_indices = choice.device_indices;
  topology.devices_per_node = placement.local_size;
  topology.num_nodes = placement.num_nodes;
  topology.supervisor_each_rank = place.several_supervisors() && placement.launched;
  topology.cores = facts.cores;
  topology.device_reason =
      placement.launched ? fmt::format("{} started {} here", placement.cluster, placement.local_size) : choice.reason;
  return place;
}

Place with_nodes(Place place, int nodes) {
  place.placement.num_nodes = nodes;
  place.placement.world_size = nodes * place.placement.local_size;
  place.topology.num_nodes = nodes;
  return place;
}

}  // namespace runner
