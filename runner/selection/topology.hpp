// The hardware that a plan is made for. The device room makes it from this machine; predictions and tests make their
// own.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runner/selection/device_kinds.hpp"
#include "strategies/contract/cpu_products.hpp"

namespace runner {

struct Topology {
  bool cuda = false;
  bool bf16 = false;         ///< every CUDA device has bf16
  int devices_per_node = 1;  ///< ranks per node
  int num_nodes = 1;
  bool supervisor_each_rank = false;  ///< a launcher starts them; else one for all ranks of a node
  std::string device_reason;          ///< why this accelerator and count, one sentence
  std::vector<int> cuda_indices;
  int cores = 1;                     ///< of this node
  CpuProducts products;              ///< of its CPU; the threads are the plan's to say
  int64_t device_memory_bytes = 0;   ///< total of the smallest CUDA device; 0: not known
  int64_t host_memory_bytes = 0;     ///< of a node; 0: not known
  const DeviceKind* kind = nullptr;  ///< of the CUDA devices; nullptr: not in the table, or CPUs
  int world_size() const { return devices_per_node * num_nodes; }
  /// CPU threads of a rank: as many as are asked for, or an equal share of the cores.
  int threads_per_rank(std::optional<int64_t> asked) const {
    return static_cast<int>(asked.value_or(std::max(1, cores / devices_per_node)));
  }
};

/// Devices of one kind that need not be here. Nothing is known of their hosts.
Topology topology_of(const DeviceKind& kind, int devices_per_node, int num_nodes);

/// What one rank may use, in bytes.
struct MemoryLimit {
  int64_t device = 0;   ///< 0: not known, everything fits
  int64_t host = 0;     ///< this rank's share of host memory beside a device; 0: not known, or there is no other
  int64_t context = 0;  ///< of `device`, what a rank takes before the first tensor
  std::string reason;   ///< "79.6 GiB of an h100-80g", one phrase
};

/// `asked`: devices.memory_limit, which lowers any other.
MemoryLimit memory_limit(const Topology& topology, int64_t asked);

}  // namespace runner
