// A training run on this rank, as the trainer uses it: optimizer steps, validation, and the training state. This base class does
// what does not depend on the plan; the executor (strategies/executor) runs the plan's program.
//
//   step: forward and backward of all micro-batches -> finish_gradients -> norm
//         -> one exchange of control words (all ranks) -> finite check, clipping -> update -> after_update
//
// An update may still run when step() returns. Code that uses its results calls settle() first, or waits for the part
// that it needs.
//
// Gradients are those of the mean loss over all tokens of the global batch: the summed loss of every micro-batch is
// multiplied by 1 / global_tokens, and reductions SUM over ranks. Nothing is divided by the world size, so a short last
// batch has the weight of its tokens, and every strategy computes the same numbers.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/world.hpp"
#include "strategies/contract/entry.hpp"
#include "strategies/contract/loss_scaler.hpp"
#include "strategies/contract/module.hpp"
#include "strategies/contract/optimizer.hpp"
#include "strategies/contract/reducer.hpp"

namespace runner {

/// Writes the initial values of elements [offset, offset + out.size()) of parameter `slot` (from the seed, or from a
/// file).
using ParameterSource = std::function<void(size_t slot, int64_t offset, std::span<float> out)>;

/// Arguments of a strategy's constructor. The references must outlive the strategy.
struct StrategySetup {
  World& world;
  Model& model;
  Job job;  ///< the description of the same run that entries use: precision, accumulation, options ...
  OptimizerConfig optimizer;
  ParameterSource source;
  std::optional<double> clip_norm = {}, clip_value = {};
  bool skip_nonfinite = false;            ///< train.on_nonfinite = "skip"
  LossScalePolicy loss_scale = {};        ///< used if precision.loss_scaling is set
  std::shared_ptr<Reducer> reducer = {};  ///< null: gradients are summed according to the plan
};

/// Input of one optimizer step on this rank.
struct StepInput {
  std::vector<MicroBatch> micro_batches;  ///< the same number on every rank; an empty one has undefined tensors
  int64_t global_tokens = 0;              ///< number of targets in the global batch, over all ranks
  double lr_factor = 1;                   ///< from the schedule; multiplies the learning rate of every group
  int64_t first_sequence = 0;  ///< index of this rank's first sequence in the global batch; the others follow it
  uint64_t dropout_key = 0;    ///< derived from (seed, step); equal on all ranks
  uint32_t votes = 0;          ///< requests of this rank after this step, one bit each; defined by the trainer
};

struct StepResult {
  double loss = 0;        ///< mean over all tokens of the global batch; equal on all ranks
  double grad_norm = 0;   ///< L2 over all parameters, before clipping; equal on all ranks
  bool finite = true;     ///< false: loss or norm is not finite, and this is an error (no intended skip)
  bool skipped = false;   ///< no update was made (loss scaler, skip_nonfinite, or the observer)
  bool rescaled = false;  ///< no update was made, because gradients overflowed; the loss scaler counts the overflow
  uint32_t votes = 0;     ///< bitwise OR of the votes of all ranks; equal on all ranks
  double loss_scale = 1.0;
  double lr_factor = 1;  ///< of the update: StepInput's, or the observer's
};

/// Elements [begin, begin + count) of an array in this rank's file on NVMe. Used instead of a tensor.
struct SwappedSpan {
  std::shared_ptr<SwappedArrays> file;
  size_t array = 0;
  int64_t begin = 0, count = 0;
};

/// This rank's part of a tensor of the training state: elements [offset, offset + numel()) of the flattened global
/// tensor. This rank writes [write_begin, write_end), relative to `offset`, to checkpoints; each replicated element is
/// written by one rank only.
struct StateTensor {
  std::string name;  ///< "param/NAME", "optimizer/exp_avg/NAME"
  std::vector<int64_t> global_shape;
  int64_t offset = 0;
  torch::Tensor local = {};  ///< contiguous, 1-d; undefined if the elements are in a file
  int64_t write_begin = 0, write_end = 0;
  std::optional<SwappedSpan> swapped = {};  ///< the elements in the file, fp32
  bool optional = false;                    ///< a checkpoint without it can be loaded; it keeps its values then

  int64_t numel() const { return swapped ? swapped->count : local.numel(); }
  /// Copies local elements [begin, begin + count) to host memory.
  torch::Tensor read(int64_t begin, int64_t count) const;
  /// Overwrites local elements [begin, begin + values.numel()) with a 1-d tensor in host memory, of any dtype.
  void write(int64_t begin, const torch::Tensor& values) const;
};

/// The piece "replica/NAME" of a rank above 0 in a tensor of shape [ranks above 0, elements], if replicas differ.
StateTensor replica_piece(const World& world, const std::string& name, const torch::Tensor& values);
std::string replica_piece_name(const std::string& name);

/// Callbacks during a step. They are called at the same points on every rank, in the thread that called step().
class StepObserver {
 public:
  /// How to update; must be equal on all ranks.
  struct Decision {
    bool skip = false;     ///< make no update
    double lr_factor = 1;  ///< replaces StepInput::lr_factor
  };
  virtual ~StepObserver() = default;
  virtual void before_backward() {}  ///< for each micro-batch, after its forward
  virtual void after_backward() {}   ///< for each micro-batch; reductions over ranks may still be in flight
  using Gradients = std::function<std::vector<StateTensor>()>;
  /// `gradients` may be called during this call. It lists this rank's gradients as "gradient/NAME": summed over ranks,
  /// multiplied by `scale`. The norm, the clipping and the finite check come later and use the changed values.
  /// `lr_factor` is StepInput's.
  virtual Decision before_optimizer_step(const Gradients& gradients, double scale, double lr_factor) = 0;
};

class Strategy {
 public:
  explicit Strategy(StrategySetup setup);
  virtual ~Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  /// Allocates the parameters on their devices and writes the initial values. Collective.
  virtual void module_to_device() = 0;
  /// One optimizer step. Collective. Throws what the forward or a collective throws, and NonFiniteError if gradients
  /// overflow at the smallest loss scale. If an update still runs when step() returns and then fails, its exception is
  /// thrown by later calls: step, evaluate, state, state_to_save, state_loaded, teardown.
  StepResult step(const StepInput& input);
  /// Summed loss of this rank's micro-batch, without gradients. Collective unless every rank updates all parameters: every rank must call
  /// it equally often. An undefined micro-batch gives 0.
  double evaluate(const MicroBatch& batch);
  /// Logits [B, vocab] fp32 at position `position` of `inputs` (int64 [B, T], on the device), without dropout.
  /// Collective unless every rank updates all parameters: every rank must call it equally often.
  torch::Tensor logits(const torch::Tensor& inputs, int64_t position);
  /// Lists the training state, after the last update has ended. The next step may overwrite the values. The trainer
  /// uses this list to save and to load. After it has loaded all of it, it calls state_loaded().
  std::vector<StateTensor> state();
  virtual void state_loaded() = 0;
  /// The "param/NAME" tensors of state(). After writing to them, between steps, call state_loaded() on all ranks.
  std::vector<StateTensor> parameters();
  /// Sets the observer of later steps; null removes it. It must outlive those steps.
  void observe(StepObserver* observer) { observer_ = observer; }
  /// Replaces cross entropy in later steps; an empty function restores it. evaluate() always uses cross entropy, so
  /// that trainings with different losses can be compared. If `loss` throws on a rank, step() throws on that rank.
  void use_loss(TokenLoss loss) { token_loss_ = std::move(loss); }
  /// The tensors that this rank writes to a checkpoint. Usually its part of the state. If the strategy saves unsharded
  /// tensors, rank 0 gets all of them in host memory, the other ranks get none, and the call is collective.
  std::vector<StateTensor> state_to_save();
  /// Non-tensor state: optimizer step count, loss scale. Equal on all ranks.
  nlohmann::json scalars() const;
  void load_scalars(const nlohmann::json& scalars);
  /// Waits for the last update and frees the strategy's resources.
  virtual void teardown() = 0;

  /// Waits until all ranks have called it.
  void barrier();
  /// Whether each rank trains a different replica of the model. Checkpoints contain rank 0's as the model, and the others as
  /// pieces "replica/NAME" (replica_piece).
  virtual bool replicas_differ() const = 0;

 protected:
  /// A parameter, or a range of one, that this rank's optimizer updates.
  struct LocalParameter {
    size_t slot;     ///< of the model
    int64_t offset;  ///< of the range in the flattened parameter
    int64_t numel;
    torch::Tensor value;  ///< 1-d contiguous; undefined if it is in a file
    std::optional<SwappedSpan> swapped = {};
  };

  // ---- implemented by the executor
  /// Runs the blocks without gradients. Returns the output of the last block.
  virtual torch::Tensor forward(const ForwardContext& context) = 0;
  /// Forward and backward of all micro-batches. Returns the sum of this rank's losses, fp64, not scaled.
  virtual torch::Tensor accumulate_gradients(const StepInput& input) = 0;
  /// Waits for the reductions. Returns one gradient for each trained local parameter, in order, in the shape of that parameter.
  virtual std::vector<torch::Tensor> finish_gradients() = 0;
  /// Whether the gradient of a local parameter on this rank is added to the norm over all ranks (only one replica must be
  /// added).
  virtual bool counts_in_norm(size_t local) const = 0;
  /// Updates the parameters with the result of finish_gradients(). May return before the update has ended; settle()
  /// then waits.
  virtual void update(std::vector<torch::Tensor> gradients, double lr_factor, double gradient_divisor) = 0;
  /// Waits until the last update has ended. Throws the exception of an update that failed.
  virtual void settle() = 0;
  /// Called at the end of a step; gradients may be freed. `updated` (equal on all ranks): update() was called, the step
  /// was not skipped.
  virtual void after_update(bool updated) = 0;
  /// The range [first, second) of a local parameter that this rank writes to checkpoints.
  virtual std::pair<int64_t, int64_t> write_range(size_t local) const = 0;
  /// Whether a checkpoint is one file of unsharded tensors (state_dict_type = "full") instead of one file for each
  /// rank.
  virtual bool saves_whole() const = 0;
  /// State of a Reducer: tensors, which state() lists after parameters and optimizer state, and scalars, which must be
  /// equal on all ranks (null: none).
  virtual std::vector<StateTensor> own_state() = 0;
  virtual nlohmann::json own_scalars() const = 0;
  virtual void load_own_scalars(const nlohmann::json& scalars) = 0;

  // ---- for derived classes
  /// Registers a local tensor with the optimizer. `copy` (optional) is a tensor of another dtype to which each update
  /// also writes the new values. Call this in the order of finish_gradients().
  void add_local(size_t slot, int64_t offset, const torch::Tensor& value, const torch::Tensor& copy = {});
  /// The same if the optimizer state is in a file, at element `begin` of its arrays. `value` is undefined if it is in
  /// the file too.
  void add_swapped(size_t slot, int64_t offset, int64_t begin, int64_t count, const torch::Tensor& value,
                   const torch::Tensor& copy);
  /// The same for a frozen parameter, after all others. It is a part of the training state, without gradient and optimizer state.
  /// `begin`: of its range in the file, if `value` is undefined.
  void add_frozen(size_t slot, int64_t offset, int64_t begin, int64_t count, const torch::Tensor& value);
  /// Writes the initial values of elements [offset, offset + value.numel()) of a parameter to `value` (1-d), in bounded
  /// pieces.
  void fill(size_t slot, int64_t offset, const torch::Tensor& value);
  /// state() without own_state().
  std::vector<StateTensor> trained_state();
  /// A micro-batch and the arguments of its forward. An empty one is replaced by one with ignored targets only, so that this
  /// rank calls every collective of the step.
  struct TrainedBatch {
    MicroBatch batch;
    ForwardContext context;  ///< refers to `batch`
  };
  std::vector<TrainedBatch> micro_batches_of(const StepInput& input) const;
  /// The summed loss of a micro-batch is multiplied by it.
  double loss_factor(const StepInput& input) const {
    return scaler_.scale() / static_cast<double>(input.global_tokens);
  }
  int64_t optimizer_steps() const { return optimizer_.steps(); }
  double loss_scale() const { return scaler_.scale(); }

  World& world_;
  Model& model_;
  Job job_;
  Optimizer optimizer_;
  ParameterSource source_;
  std::vector<LocalParameter> locals_;  ///< the trained ones, in the order of their gradients, and then the frozen ones
  size_t trained_ = 0;                  ///< number of trained ones
  StepObserver* observer_ = nullptr;

 private:
  /// One StateTensor "KIND/NAME" for each of the first `count` local parameters, without values.
  std::vector<StateTensor> pieces(const std::string& kind, size_t count) const;
  StepObserver::Decision ask_observer(const std::vector<torch::Tensor>& gradients, double lr_factor) const;
  /// One sequence with ignored targets only, so that a rank without data calls every collective of the step.
  MicroBatch empty_batch() const;
  /// All-gathers the words of all ranks and sums them in rank order, so that every rank gets the same bits. Digests of
  /// each rank's collective calls are exchanged in the same message. Throws Error(run_failed) if the calls differ.
  struct Control {
    double loss = 0, squared_norm = 0;
    uint32_t votes = 0;
    bool finite = true;
  };
  Control exchange(double loss, double squared_norm, uint32_t votes);
  /// Sum of the squares of this rank's gradients for which counts_in_norm() is true.
  double squared_norm(const std::vector<torch::Tensor>& gradients) const;
  /// Collective. Throws NonFiniteError naming the first parameter whose gradient is not finite.
  void fail_at_floor(const std::vector<torch::Tensor>& gradients);

  std::optional<double> clip_norm_, clip_value_;
  bool skip_nonfinite_;
  LossScaler scaler_;
  TokenLoss token_loss_;
};

/// Makes the strategy with that name (registry.cpp). An unknown name is a bug of the caller and throws
/// std::logic_error.
std::unique_ptr<Strategy> make_strategy(const std::string& name, StrategySetup setup);

}  // namespace runner
