// The world as one rank sees it: its rank, its device, and its process groups (c10d).
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "strategies/collective/accelerator.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/trace.hpp"

namespace runner {

class DivergenceWatch;
using ProcessGroup = c10::intrusive_ptr<c10d::ProcessGroup>;

/// All that a strategy knows about the other ranks. Made by make_world, in tests also by run_ranks.
struct World {
  int rank = 0, size = 1;
  torch::Device device{torch::kCPU};
  Accelerator accelerator;  ///< what `device` can do
  /// All ranks: the group for parameters and gradients on `device`. Never null, also when size is 1.
  ProcessGroup group;
  /// All ranks, for CPU tensors: small control messages (loss, stop bit). On CPU it uses the same backend as `group`.
  ProcessGroup control;
  /// The calls of this rank on all these groups. `group` and `control` are the first two.
  std::shared_ptr<CollectiveTrace> trace;
  static constexpr int group_index = 0, control_index = 1;  ///< in the trace, for tests
  c10::intrusive_ptr<c10d::Store> store;
  /// Set if there are several ranks and WorldOptions.on_diverged is set, otherwise null.
  std::shared_ptr<DivergenceWatch> watch;
  /// A group of some ranks. This is a collective call over all ranks: every rank makes it for every subgroup, in the same order.
  /// Ranks that are not in the group get a null pointer.
  std::function<ProcessGroup(const std::vector<int>& ranks, const std::string& name)> make_subgroup;
};

/// Waits until all ranks of `group` have called it. ProcessGroup::barrier of LibTorch assigns a variable that all threads of a process
/// share (ProcessGroup.hpp), without a lock; where ranks are threads, that corrupts the heap.
void barrier(const ProcessGroup& group);

/// Options of make_world.
struct WorldOptions {
  int rank = 0, size = 1, local_size = 1, num_nodes = 1;
  int ranks_of_process = 1;  ///< ranks that are threads of this process
  std::string backend;  ///< shm | gloo | nccl; empty: nccl on CUDA, shm if all ranks are on one host, otherwise gloo
  Accelerator accelerator;
  int device_index = 0;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;
  int listen_fd = -1;        ///< rank 0: a socket already listening on master_port (TCPStoreOptions.masterListenFd)
  int shm_fd = -1;           ///< memfd shared by the ranks of this host
  std::string node_address;  ///< the address of this host for the other hosts; empty: all ranks are on this host
  /// Called on another thread with a description when ranks wait in different collectives. It must end the process.
  std::function<void(const std::string& verdict)> on_diverged;
  /// Called on another thread of rank 0 with a description of ranks for which others have waited long.
  std::function<void(const std::string& text)> on_late;
  std::chrono::milliseconds divergence_patience{3000};  ///< time without a new call before ranks compare their calls
  std::chrono::milliseconds late_after{120'000};  ///< ... before rank 0 looks for late ranks and for stopped processes
  std::chrono::milliseconds timeout{1800'000};
  std::chrono::milliseconds rendezvous_timeout{300'000};
};
/// From RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, RUNNER_LISTEN_FD,
/// RUNNER_SHM_FD, RUNNER_NODE_ADDRESS, RUNNER_DEVICE_INDEX (default: the local rank).
WorldOptions world_options_from_environment();
/// The options of each rank of this process; every rank is a thread. The first rank is RANK, RUNNER_RANKS_OF_WORKER (default: 1) is their
/// number, and RUNNER_DEVICE_INDEX lists one device for each.
std::vector<WorldOptions> world_options_of_threads();

/// Waits for the other ranks and makes the groups. Throws Error(environment); if the deadline passes, the error names the ranks and
/// nodes that did not join.
World make_world(const WorldOptions& options);

}  // namespace runner
