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
    fs::path folder;  ///< RUN_DIR/checkpoints
    bool async = true;
    int64_t keep_last = 2, save_top_k = 0;
    std::string monitor;
  };
  struct Published {
    int64_t step;
    std::string path;
    double seconds;  ///< from the snapshot to the rename
    uint64_t bytes;
  };
  /// `published` is called on rank 0, on the background thread.
  Checkpointer(World& world, Options options, std::function<void(const Published&)> published);
  ~Checkpointer();

  /// Collective. Copies the state to host memory, then writes in the background; waits for the save before it first.
  /// Where no step follows, or saves are not asynchronous, the caller waits, and the state is written without a copy.
  /// `more`: this rank's pieces of tensors that are not the strategy's.
  void save(Strategy& strategy, int64_t step, const TrainerState& state, const std::vector<StateTensor>& more = {},
            bool steps_follow = true);
  /// Until the last save is published. Rethrows what went wrong in it.
  void wait();
  /// Rethrows what went wrong in the last save, if that is known by now.
  void rethrow_failure();

 private:
  struct Snapshot;
  void write(const Snapshot& snapshot);
  nlohmann::json write_rank(CheckpointWriter& writer, const Snapshot& snapshot);
  void tell_rank_0(int64_t step, const nlohmann::json& entry);
  nlohmann::json entry_of(int rank, int64_t step);

  World& world_;
  Options options_;
  std::function<void(const Published&)> published_;
  std::future<void> running_;
};

/// Elements [offset, offset + count) of a tensor of a checkpoint, in host memory, in the dtype that it was saved in.
torch::Tensor read_elements(const Checkpoint& checkpoint, const std::string& tensor, int64_t offset, int64_t count);

/// Fills a strategy's state from a checkpoint; reads the byte ranges this rank needs only. Throws Error(environment)
/// naming the tensors that are missing or have another shape.
void load_state(Strategy& strategy, const Checkpoint& checkpoint);

}  // namespace runner
