// Checkpoints of a strategy: a snapshot on the training thread, files written and published in the background.
#pragma once
#include <functional>
#include <future>
#include <string>

#include "runner/checkpoint/checkpoint.hpp"
#include "strategies/contract/strategy.hpp"

namespace runner {

class Checkpointer {
 public:
  struct Options {
    fs::path folder;      ///< RUN_DIR/checkpoints
    int64_t attempt = 1;  ///< of the run
    bool async = true;
    bool stop_on_error = false;  ///< else training goes on without a checkpoint that cannot be written
    int64_t keep_last = 2, save_top_k = 0;
    std::string monitor;
  };
  struct Published {
    int64_t step;
    std::string path;
    double seconds;  ///< from the snapshot to the rename
    uint64_t bytes;
  };
  /// What is called on rank 0. The first two are called on the background thread.
  struct Calls {
    std::function<void()> settle = [] {};  ///< before a checkpoint is published: what came before it must be safe
    std::function<void(const Published&)> published = [](const Published&) {};
    std::function<void(const std::string&)> note = [](const std::string&) {};  ///< for a person
  };
  Checkpointer(World& world, Options options, Calls calls);
  ~Checkpointer();

  /// What a checkpoint contains in addition to the strategy's state.
  struct More {
    std::vector<StateTensor> tensors;  ///< this rank's pieces of tensors that are not the strategy's
    std::vector<fs::path> files;       ///< on rank 0: files that must be on disk before the checkpoint is published
  };
  /// Collective. Copies the state to host memory, then writes in the background; waits for the previous save first. If no step
  /// follows, or if saves are not asynchronous, the caller waits, and the state is written without a copy.
  void save(Strategy& strategy, int64_t step, const TrainerState& state, const More& more = {}, bool steps_follow = true);
  /// Waits until the last save has ended. Throws Error(environment) if it failed and stop_on_error is set.
  void wait();
  /// The same of a save that has ended by now.
  void look();
  /// At the end of a run: wait(), and throws whenever the last save could not be written.
  void finish();

 private:
  struct Snapshot;
  /// Why the checkpoint could not be written, the same on all ranks; empty: it was published.
  std::string write(const Snapshot& snapshot);
  std::string publish(CheckpointWriter& writer, const std::vector<nlohmann::json>& entries, const Snapshot& snapshot);
  void ended(const std::string& failure);

  World& world_;
  c10::intrusive_ptr<c10d::Store> store_;  ///< a connection of its own: waiting on it keeps nobody else from the store
  Options options_;
  Calls calls_;
  int64_t saves_ = 0;  ///< counts calls of save(), alike on all ranks
  std::future<std::string> running_;
  std::string failure_;  ///< of the last save that has ended
};

/// Elements [offset, offset + count) of a tensor of a checkpoint, in host memory, in the dtype that it was saved in.
torch::Tensor read_elements(const Checkpoint& checkpoint, const std::string& tensor, int64_t offset, int64_t count);

/// Fills a strategy's state from a checkpoint; reads the byte ranges this rank needs only. Throws Error(environment)
/// naming the tensors that are missing or have another shape.
void load_state(Strategy& strategy, const Checkpoint& checkpoint);

}  // namespace runner
