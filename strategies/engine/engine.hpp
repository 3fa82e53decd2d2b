// The interface that the trainer and checkpoints use: the training of one rank. It takes batches in host memory, and returns
// numbers and views of its state. Torch-free, so that it can be implemented without LibTorch. Strategy implements it.
#pragma once
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "strategies/engine/host_batch.hpp"
#include "strategies/engine/slice.hpp"

namespace runner {

/// Input of one optimizer step on this rank.
struct StepInput {
  std::vector<HostBatch> micro_batches;  ///< the same number on every rank; some may be empty
  /// The divisor of the summed loss of the global batch: the number of targets, images, ... that count in it, over all
  /// ranks and micro-batches. If it is 0, the loss and the gradients are 0; the optimizer still makes its update.
  int64_t weight = 0;
  int64_t rank_weight = 0;  ///< the number in this rank's micro-batches
  double lr_factor = 1;     ///< from the schedule; multiplies the learning rate of every group
  /// The schedule: `lr_factor` of optimizer step `step`, from 1 on. For reducers that count other steps than the trainer; may be empty.
  std::function<double(int64_t step)> lr_factor_at = {};
  int64_t first_row = 0;     ///< index of this rank's first row in the global batch; the others follow it
  uint64_t dropout_key = 0;  ///< derived from (seed, step); equal on all ranks
  uint32_t votes = 0;        ///< requests of this rank after this step, one bit each; defined by the trainer
};

struct StepResult {
  double loss = 0;        ///< of the global batch: summed loss / weight; equal on all ranks
  double grad_norm = 0;   ///< L2 over all parameters, before clipping; equal on all ranks
  bool finite = true;     ///< false: loss or norm is not finite, and this is an error (no intended skip)
  bool skipped = false;   ///< no update was made (loss scaler, skip_nonfinite, the observer, or the reducer)
  bool rescaled = false;  ///< no update was made, because gradients overflowed; the loss scaler counts the overflow
  uint32_t votes = 0;     ///< bitwise OR of the votes of all ranks; equal on all ranks
  double loss_scale = 1.0;
  double lr_factor = 1;  ///< of the update: StepInput's, or the observer's; includes the gain
  double gain = 1;       ///< of AdaScale: the steps of the schedule that the update counts as
};

/// Values in host memory.
struct HostBytes {
  std::shared_ptr<const void> owner;  ///< keeps `bytes` alive
  std::span<const std::byte> bytes;
};

/// This rank's part of a tensor of the training state: elements [offset, offset + count) of a flattened slice of the
/// global tensor. This rank writes [write_begin, write_end), relative to `offset`, to checkpoints; each replicated
/// element is written by one rank only.
struct StateView {
  std::string name;   ///< "param/NAME", "optimizer/exp_avg/NAME"
  std::string dtype;  ///< as in safetensors: "F32"
  std::vector<int64_t> global_shape;
  TensorSlice slice = {};
  int64_t offset = 0, count = 0;
  int64_t write_begin = 0, write_end = 0;
  bool optional = false;  ///< a checkpoint without it can be loaded; it keeps its values then
  bool in_file = false;   ///< the elements are in a file of this rank; a copy of all of them may not fit in memory
  /// Copies elements [begin, begin + count), relative to `offset`, to host memory.
  std::function<HostBytes(int64_t begin, int64_t count)> read;
  /// Overwrites the elements from `begin` on, relative to `offset`. `dtype` is that of the values.
  std::function<void(int64_t begin, const std::string& dtype, std::span<const std::byte> values)> write;
};

/// The name of the pieces of other replicas, if replicas differ.
inline std::string replica_piece_name(const std::string& name) { return "replica/" + name; }

/// Every rank makes the same calls in the same order. An update may still run when step() returns. If it fails, later
/// calls throw its exception: step, evaluate, state_views, views_to_save, state_loaded, teardown.
class Engine {
 public:
  virtual ~Engine() = default;

  /// Which of `data_ranks` parts of every global batch this rank reads. Several ranks may read the same part.
  virtual int data_rank() const = 0;
  virtual int data_ranks() const = 0;
  /// One optimizer step. Collective. Throws what the forward or a collective throws, and NonFiniteError if gradients
  /// overflow at the smallest loss scale.
  virtual StepResult step(const StepInput& input) = 0;
  /// Summed loss of this rank's micro-batch, without gradients; 0 for an empty one. The values of all ranks add up to the
  /// loss of the micro-batches of all data ranks. Collective unless every rank updates all parameters: every rank must
  /// call it equally often.
  virtual double evaluate(const HostBatch& batch) = 0;
  /// Evaluates as evaluate(), and returns the sums that the model measures (models/task_metrics.hpp). The first one is the loss.
  virtual std::vector<double> evaluate_sums(const HostBatch& batch) { return {evaluate(batch)}; }
  /// The logits [vocab] at position `position` of the batch's first row, without dropout. Collective as evaluate().
  virtual std::vector<float> logits(const HostBatch& batch, int64_t position) = 0;

  /// The training state, after the last update has ended. The next step may overwrite the values. After writing to all
  /// of it or to parameters, between steps, call state_loaded() on all ranks.
  virtual std::vector<StateView> state_views() = 0;
  /// The tensors that this rank writes to a checkpoint. Usually its part of the state. If unsharded tensors are saved, rank 0 gets
  /// all of them, the other ranks get none, and the call is collective.
  virtual std::vector<StateView> views_to_save() = 0;
  virtual void state_loaded() = 0;
  /// State without tensors: optimizer step count, loss scale. Equal on all ranks.
  virtual nlohmann::json scalars() const = 0;
  virtual void load_scalars(const nlohmann::json& scalars) = 0;
  /// Whether each rank trains a different replica of the model. Checkpoints contain rank 0's as the model, and the
  /// others as replica_piece_name("NAME").
  virtual bool replicas_differ() const = 0;

  /// Collective. The sum of the ranks' values.
  virtual double sum_over_ranks(double value) = 0;
  /// Collective. The sum over the ranks of each value of a list, which has the same length on all of them.
  virtual std::vector<double> sums_over_ranks(std::vector<double> values) {
    for (double& value : values) value = sum_over_ranks(value);
    return values;
  }
  /// Waits until all ranks have called it.
  virtual void barrier() = 0;
  /// Waits for the last update and frees the engine's resources.
  virtual void teardown() = 0;
};

}  // namespace runner
