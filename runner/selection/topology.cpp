#include "runner/selection/topology.hpp"

#include <fmt/format.h>

#include "runner/base/text.hpp"
#include "strategies/xla/entry.hpp"

namespace runner {

namespace {

constexpr int64_t mebibyte = 1 << 20;
/// LibTorch, code and threads of a CPU rank: peak resident bytes less tensor bytes (scripts/bench/train, 2026).
constexpr int64_t cpu_context = 200 * mebibyte;

}  // namespace

Accelerator pjrt_accelerator() {
  return {.type = "PJRT", .own_memory = true, .host_kernels = false, .platform = "pjrt"};
}

bool has_pjrt_devices(const Recipe& recipe) {
  return !recipe.devices.simulate && !plugin_of_devices(recipe.strategy.options).empty();
}

Mesh Topology::mesh() const {
  const auto of_data = sizes.ranks_of_data(), data = sizes.complete() ? sizes.data_ranks() : world_size() / of_data;
  const auto axis = [](Axis name, int64_t size) { return MeshAxis{.axis = name, .size = static_cast<int>(size)}; };
  return {world_size(),
          {axis(Axis::pipeline, sizes.pipeline.value_or(1)), axis(Axis::data, data),
           axis(Axis::context, sizes.context.value_or(1)), axis(Axis::tensor, sizes.tensor.value_or(1))}};
}

Topology topology_of(const DeviceKind& kind, int devices_per_node, int num_nodes) {
  return {.accelerator = cuda_accelerator(),
          .bf16 = kind.bf16(),
          .devices_per_node = devices_per_node,
          .num_nodes = num_nodes,
          .device_reason = fmt::format("devices of kind {} are requested", kind.name),
          .device_indices = {},
          .cores = devices_per_node,
          .device_memory_bytes = kind.memory_bytes,
          .kind = &kind};
}

MemoryLimit memory_limit(const Topology& topology, int64_t asked) {
  MemoryLimit limit;
  int64_t host_share = topology.host_memory_bytes / topology.ranks_per_machine();
  if (topology.pjrt_devices) {
    limit.host = host_share;
  } else if (topology.on_devices()) {
    limit.device = topology.device_memory_bytes;
    limit.host = host_share;
    limit.context = topology.accelerator.context_bytes;
    if (topology.world_size() > 1) limit.context += topology.accelerator.communicator_bytes;
    if (limit.device > 0)
      limit.reason =
          fmt::format("{} of {}", format_bytes(limit.device), topology.kind ? topology.kind->name : "this device");
  } else {
    limit.device = host_share;
    limit.context = cpu_context;
    if (limit.device > 0)
      limit.reason = topology.ranks_per_machine() == 1
                         ? fmt::format("{} of host memory", format_bytes(limit.device))
                         : fmt::format("{}, an equal share of {} of host memory", format_bytes(limit.device),
                                       format_bytes(topology.host_memory_bytes));
  }
  if (asked > 0 && (limit.device == 0 || asked < limit.device)) {
    limit.device = asked;
    limit.reason = fmt::format("devices.memory_limit = {}", format_bytes(asked));
  }
  return limit;
}

}  // namespace runner
