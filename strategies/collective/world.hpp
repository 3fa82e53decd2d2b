// The world of one rank: who it is, its device, and the process groups it may talk through (c10d).
#pragma once
#include <torch/torch.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "strategies/collective/trace.hpp"

namespace runner {

class DivergenceWatch;
using ProcessGroup = c10::intrusive_ptr<c10d::ProcessGroup>;

/// Everything a strategy knows of the other ranks. Made by make_world (real processes) or ThreadWorld (tests).
struct World {
  int rank = 0, size = 1;
  torch::Device device{torch::kCPU};
  /// All ranks; the group for parameters and gradients on `device`. Defined also when size is 1.
  ProcessGroup group;
  /// All ranks, CPU tensors: small control messages (loss, stop bit). On CPU it is `group`'s backend under another
  /// name.
  ProcessGroup control;
  /// What this rank calls on all these groups; `group` and `control` are the first two.
  std::shared_ptr<CollectiveTrace> trace;
  static constexpr int group_index = 0, control_index = 1;  ///< in the trace
  c10::intrusive_ptr<c10d::Store> store;
  /// Where the transport does not compare calls itself (Gloo, NCCL) and WorldOptions.on_diverged is set; else null.
  std::shared_ptr<DivergenceWatch> watch;
  /// A group of some ranks (collective over all ranks: everybody calls it for every subgroup, in the same order, also
  /// ranks that are not in it; those get an undefined pointer).
  std::function<ProcessGroup(const std::vector<int>& ranks, const std::string& name)> make_subgroup;
};

/// What make_world is told.
struct WorldOptions {
  int rank = 0, size = 1, local_size = 1, num_nodes = 1;
  std::string backend;  ///< shm | gloo | nccl; empty: nccl on CUDA, shm when all ranks share one host, else gloo
  std::string accelerator = "cpu";
  int cuda_index = 0;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;
  int listen_fd = -1;        ///< rank 0: a socket already listening on master_port (TCPStoreOptions.masterListenFd)
  int shm_fd = -1;           ///< memfd shared by the ranks of this host
  std::string node_address;  ///< by which the other hosts reach this one; empty: all ranks are on this host
  /// Told, on another thread, that ranks wait in different collectives and which; must end the process.
  std::function<void(const std::string& verdict)> on_diverged;
  std::chrono::milliseconds divergence_patience{3000};  ///< without a new call, before the others are asked
  std::chrono::milliseconds timeout{1800'000};
  std::chrono::milliseconds rendezvous_timeout{300'000};
};
/// From RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, RUNNER_LISTEN_FD,
/// RUNNER_SHM_FD, RUNNER_NODE_ADDRESS, RUNNER_CUDA_INDEX (else the local rank).
WorldOptions world_options_from_environment();

/// Meets the other ranks (with a deadline whose error names the ranks and nodes that did not come) and makes the
/// groups. Throws Error(environment).
World make_world(const WorldOptions& options);

}  // namespace runner
