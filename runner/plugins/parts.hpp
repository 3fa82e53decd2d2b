// The interface of parts that replace some of the runner's own, in a library that is built outside of this project: where ranks run, and
// where checkpoints are kept. `cmake --install` puts it into include/runner/plugins/parts.hpp. In a recipe:
//
//   [plugins]
//   cluster_environment = "librack.so"   # one library can have both
//   checkpoint_io = "librack.so"
//   options = { bucket = "/mnt/store" }
//
// The parts `precision` and `accelerator`, which need LibTorch, are in torch_parts.hpp. This header needs no other library.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>

#include "runner/plugins/options.hpp"

namespace runner::parts {

/// Changes with every change of this header. A runner loads only libraries that were built with its version.
inline constexpr uint32_t version = 1;

using plugin::Options;

/// The ranks that this process supervises.
struct Ranks {
  int node_rank = 0, num_nodes = 1;  ///< 0 <= node_rank < num_nodes
  /// Where the processes meet: the host of rank 0, which must be set if there are several nodes, and a port that is free there, 1 to
  /// 65535. Port 0: a port that follows from job_id, or 29500 without a job_id.
  std::string main_address = {};
  int main_port = 0;
  /// Set if a launcher started one process for each rank, and this process is one of them. Every node has local_size ranks, and they are
  /// numbered node by node: rank = node_rank * local_size + local_rank. Otherwise this process starts the ranks of its node.
  struct Launched {
    int rank = 0, world_size = 1, local_rank = 0, local_size = 1;
  };
  std::optional<Launched> launched = {};
  std::string job_id = {};  ///< the same for all processes of a job, and different for other jobs; may be empty
};

/// Where the processes of a job run. `runner check` makes one too, outside of a job, and does not call ranks(). So only ranks() may read
/// what exists only in a job, such as its environment variables.
class ClusterEnvironment {
 public:
  virtual ~ClusterEnvironment() = default;
  /// Called by `runner run`, `resume`, `rerun` and `sweep`, in each process that a user or a launcher has started; the result must be the
  /// same each time. May throw std::exception with what is missing; the run then does not start.
  virtual Ranks ranks() = 0;
};

/// A second place for checkpoints, such as an object store. A checkpoint is a folder with files. `run`: the id of a run; `name`: such as
/// "step-000010". The process that supervises rank 0 calls the functions, one at a time, on any thread. Functions may throw std::exception.
/// They must not call std::system, which makes the process ignore Ctrl-C.
class CheckpointIO {
 public:
  virtual ~CheckpointIO() = default;
  /// Stores a published checkpoint, whose files it must not change. When it returns, the checkpoint must be complete in the store; if it
  /// throws or the process is killed, complete or not listed by names(). A checkpoint of the same run and name is replaced.
  virtual void save(const std::string& run, const std::string& name, const std::filesystem::path& folder) = 0;
  /// Writes the files of a stored checkpoint into an empty folder.
  virtual void load(const std::string& run, const std::string& name, const std::filesystem::path& folder) = 0;
  /// Removes a stored checkpoint. It need not exist.
  virtual void remove(const std::string& run, const std::string& name) = 0;
  /// The names of the complete checkpoints of a run, in any order. The runner ignores others, with a note.
  virtual std::vector<std::string> names(const std::string& run) = 0;
};

/// The exports of a library. The first member never changes its place. A part that a library does not have is null.
/// The options that a function gets end with the call: copy what is needed later.
struct Library {
  uint32_t version = parts::version;
  std::unique_ptr<ClusterEnvironment> (*cluster_environment)(const Options& options) = nullptr;
  std::unique_ptr<CheckpointIO> (*checkpoint_io)(const Options& options) = nullptr;
};

}  // namespace runner::parts

/// Defines what the library exports: RUNNER_PARTS(.checkpoint_io = [](const runner::parts::Options& o) { ... })
#define RUNNER_PARTS(...)                                                                          \
  extern "C" __attribute__((visibility("default"))) const runner::parts::Library* runner_parts() { \
    static const runner::parts::Library library{__VA_ARGS__};                                      \
    return &library;                                                                               \
  }
