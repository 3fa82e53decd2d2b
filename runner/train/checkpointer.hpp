// Checkpoints of a training: a snapshot on the training thread, which a background thread writes and publishes.
#pragma once
#include <functional>
#include <future>
#include <string>

#include "runner/checkpoint/checkpoint.hpp"
#include "runner/config/recipe.hpp"
#include "strategies/collective/world.hpp"
#include "strategies/engine/engine.hpp"

namespace runner {

class Checkpointer {
 public:
  struct Options {
    fs::path folder;      ///< RUN_DIR/checkpoints
    int64_t attempt = 1;  ///< number of the attempt of the run
    bool async = true;
    bool wait_for_store = false;  ///< after publishing, wait until the supervisor has stored the checkpoint elsewhere
    bool stop_on_error = false;   ///< false: training continues if a checkpoint cannot be written
    int64_t keep_last = 2, save_top_k = 0, keep_every = 0;
    std::string monitor;
  };
  struct Published {
    int64_t step;
    std::string path;
    double seconds;  ///< from the snapshot to the rename
    uint64_t bytes;
  };
  /// Callbacks on rank 0. The background thread calls the first two.
  struct Calls {
    /// Before publishing: makes all earlier events durable. With wait_for_store, it is also called after it.
    std::function<void()> settle = [] {};
    std::function<void(const Published&)> published = [](const Published&) {};
    std::function<void(const std::string&)> note = [](const std::string&) {};  ///< a message for the user
  };
  Checkpointer(World& world, Options options, Calls calls);
  ~Checkpointer();
  /// Training continues from `step`: later checkpoints of earlier attempts are given up. Without this call it is 0.
  void continue_from(int64_t step);

  /// The content of a checkpoint in addition to the engine's state.
  struct More {
    std::vector<StateView> tensors;  ///< this rank's pieces of tensors outside the engine
    std::vector<fs::path> files;     ///< on rank 0: files that must be on disk before the checkpoint is published
  };
  /// Collective. Waits for the previous save, copies the state to host memory, and writes it in the background. If no
  /// step follows, or if saves are not asynchronous, the caller waits, and the state is written without a copy.
  void save(Engine& engine, int64_t step, const TrainerState& state, const More& more = {}, bool steps_follow = true);
  /// Waits until the last save has ended. Throws Error(environment) if it failed and stop_on_error is set. On rank 0 it
  /// throws Error(run_failed), also without stop_on_error, if the next save would fail for the same reason.
  void wait();
  /// Like wait(), but does nothing if the last save has not ended yet.
  void look();
  /// For the end of a run: waits, removes old checkpoints, and throws Error(environment) if the last save failed, also
  /// without stop_on_error.
  void finish();

 private:
  struct Snapshot;
  /// Returns why the checkpoint could not be written, the same on all ranks. Empty if it was published.
  std::string write(const Snapshot& snapshot);
  std::string publish(CheckpointWriter& writer, const std::vector<nlohmann::json>& entries, const Snapshot& snapshot);
  void announce(const fs::path& path, const Snapshot& snapshot);
  void ended(const std::string& failure);
  void retain();

  World& world_;
  c10::intrusive_ptr<c10d::Store> store_;  ///< a separate connection: waiting on it does not block other users
  Options options_;
  Calls calls_;
  int64_t start_ = 0;  ///< the step that the attempt began from
  int64_t saves_ = 0;  ///< number of calls of save(); equal on all ranks
  std::future<std::string> running_;
  std::string failure_;   ///< of the last save that has ended; empty if it succeeded
  int64_t failures_ = 0;  ///< saves that have failed since the last success
};

/// The settings of [checkpoint].
Checkpointer::Options checkpoint_options(const Recipe& recipe, const fs::path& run_dir, int64_t attempt);

/// Elements [offset, offset + count) of a tensor of a checkpoint, in host memory, in the dtype that it was saved in.
torch::Tensor read_elements(const Checkpoint& checkpoint, const std::string& tensor, const SlicePart& part);

/// Fills an engine's state from a checkpoint. Reads only the byte ranges that this rank needs. Throws
/// Error(environment) with the names of tensors that are missing or have another shape.
///
/// The state of a reducer or of a Lua strategy begins anew in two cases: the checkpoint's is that of another one, or it has values of each
/// rank, and the number of ranks has changed. Returns a note about each case, the same on all ranks.
std::vector<std::string> load_state(Engine& engine, const Checkpoint& checkpoint);

}  // namespace runner
