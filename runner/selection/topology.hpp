// The hardware for which a plan is made. runner/devices describes this machine; predictions and tests describe other
// hardware.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/selection/batch.hpp"
#include "runner/selection/device_kinds.hpp"
#include "strategies/collective/accelerator.hpp"
#include "strategies/mesh/mesh.hpp"

namespace runner {

/// The devices of a PJRT plug-in, for predictions. Ranks drive them from the host.
Accelerator pjrt_accelerator();

struct Topology {
  Accelerator accelerator = {};  ///< what ranks compute on; default: the CPU
  bool bf16 = false;             ///< every device has bf16; false on the CPU
  int devices_per_node = 1;      ///< ranks per node
  int num_nodes = 1;
  MeshSizes sizes = {};               ///< of the mesh (resolve_mesh())
  bool pjrt_devices = false;          ///< a PJRT plug-in computes on other devices than the CPU, of unknown memory
  bool simulated = false;             ///< all ranks of all nodes are CPU processes of this machine
  bool supervisor_each_rank = false;  ///< a launcher starts one supervisor per rank; false: one per node
  std::string device_reason;          ///< why this accelerator and count, one sentence
  std::vector<int> device_indices;    ///< none on the CPU
  int cores = 1;                      ///< of this node
  int64_t device_memory_bytes = 0;    ///< total of the smallest device; 0: not known, or the CPU
  int64_t host_memory_bytes = 0;      ///< of a node; 0: not known
  const DeviceKind* kind = nullptr;   ///< of the devices; nullptr: not in the table, or the CPU
  /// Ranks compute on devices with memory of their own, not on the CPU.
  bool on_devices() const { return accelerator.own_memory; }
  /// The noun for one of the devices, in messages.
  std::string noun() const { return pjrt_devices ? pjrt_accelerator().noun() : accelerator.noun(); }
  int world_size() const { return devices_per_node * num_nodes; }  ///< all ranks of the run
  /// All ranks. A plan splits its axis `data`. Throws Error(usage) if the sizes do not multiply to their number.
  Mesh mesh() const;
  int data_ranks() const { return mesh().data_ranks(); }  ///< ranks that read different data
  BatchRanks batch_ranks() const {
    const Mesh all = mesh();
    return {.data = all.data_ranks(), .pipeline = all.size(Axis::pipeline)};
  }
  int data_ranks_of_node() const { return std::clamp(devices_per_node / mesh().stride(Axis::data), 1, data_ranks()); }
  /// The ranks that share the memory and the cores of a machine.
  int ranks_per_machine() const { return simulated ? world_size() : devices_per_node; }
  /// CPU threads of a rank: `asked`, or an equal share of the cores.
  int threads_per_rank(std::optional<int64_t> asked) const {
    return static_cast<int>(asked.value_or(std::max(1, cores / ranks_per_machine())));
  }
};

/// Whether the recipe's strategy computes on other devices than LibTorch's, with a PJRT plug-in.
bool has_pjrt_devices(const Recipe& recipe);

/// Devices of one kind, which need not be in this machine. Their hosts are not known.
Topology topology_of(const DeviceKind& kind, int devices_per_node, int num_nodes);

/// The memory that one rank may use, in bytes.
struct MemoryLimit {
  int64_t device = 0;   ///< 0: not known, everything fits
  int64_t host = 0;     ///< this rank's share of host memory, with devices; 0: not known, or CPU ranks
  int64_t context = 0;  ///< part of `device` that a rank uses before its first tensor
  std::string reason;   ///< "79.6 GiB of h100-80g", one phrase

  /// Whether host memory, not the device's, is what a rank that needs so many bytes lacks, or comes closer to lacking.
  bool decided_by_host(int64_t device_bytes, int64_t host_bytes) const {
    if (device == 0) return true;
    auto share = [](int64_t bytes, int64_t of) { return static_cast<double>(bytes) / static_cast<double>(of); };
    return device_bytes <= device && host > 0 && share(host_bytes, host) > share(device_bytes, device);
  }
};

/// `asked`: devices.memory_limit, which can only lower a limit that is known; 0: not set.
MemoryLimit memory_limit(const Topology& topology, int64_t asked);

}  // namespace runner
