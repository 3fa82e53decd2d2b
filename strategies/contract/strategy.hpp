// The strategy base class: it owns the optimizer step, and strategies fill small hooks.
//
//   step: for each micro-batch { forward through the blocks; backward } -> finish_gradients -> norm, clipping, finite
//   check,
//         one exchange of control words -> update -> after_update
//
// An update may go on after step() has returned: what uses its results, or its end, calls settle() or waits for what it
// needs of it.
//
// Gradients are of the mean loss over all tokens of the global batch: every micro-batch's summed loss is scaled by
// 1 / global_tokens, and reductions SUM over ranks. So nothing is divided by a world size, a short last batch weighs
// what it holds, and every strategy computes the same numbers.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/world.hpp"
#include "strategies/contract/entry.hpp"
#include "strategies/contract/host_checkpoints.hpp"
#include "strategies/contract/loss_scaler.hpp"
#include "strategies/contract/module.hpp"
#include "strategies/contract/optimizer.hpp"

namespace runner {

/// Fills elements [offset, offset + out.size()) of parameter `slot` with its initial values (seeded, or read from a
/// file).
using ParameterSource = std::function<void(size_t slot, int64_t offset, std::span<float> out)>;

struct StateTensor;

/// What reduces a strategy's buckets of gradients in place of an all-reduce, with state of its own. Every rank makes
/// the same calls, in the same order.
class CommHook {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;
  /// What a hook may ask of the strategy that it works for.
  struct Host {
    std::function<int64_t()> steps;      ///< optimizer steps done
    std::function<double()> loss_scale;  ///< gradients are multiplied by it
  };
  virtual ~CommHook() = default;
  /// Before the first step: elements of each bucket, in the order in which they will be reduced.
  virtual void prepare(const std::vector<int64_t>& bucket_elements, const torch::TensorOptions& options, Host host) = 0;
  /// A bucket is full, `gradients` (1-d) this rank's. Called while backward goes on, by whichever thread of autograd's
  /// has delivered the last of them, never by two at once. When the work that it returns has ended, `gradients` are the
  /// sums over ranks; where it returns none, when finish() has.
  virtual Work begin(size_t bucket, const torch::Tensor& gradients) = 0;
  /// Of every bucket in order, once all have begun.
  virtual void finish(size_t bucket) = 0;
  virtual std::vector<StateTensor> state() = 0;
  virtual nlohmann::json scalars() const = 0;
  virtual void load_scalars(const nlohmann::json& scalars) = 0;
};

/// What a strategy is made from. References outlive the strategy.
struct StrategySetup {
  World& world;
  Model& model;
  Job job;  ///< the entry's view of the same run: precision, accumulation, options ...
  OptimizerConfig optimizer;
  ParameterSource source;
  std::optional<double> clip_norm, clip_value;
  bool skip_nonfinite = false;               ///< train.on_nonfinite = "skip"
  LossScalePolicy loss_scale = {};           ///< where the precision scales losses
  std::shared_ptr<CommHook> comm_hook = {};  ///< null: gradients are summed as the options say
};

/// One optimizer step's input on this rank.
struct StepInput {
  std::vector<MicroBatch> micro_batches;  ///< as many on every rank; one without any sequence has undefined tensors
  int64_t global_tokens = 0;              ///< targets of the whole global batch, over all ranks
  double lr_factor = 1;                   ///< the schedule's, on every group's rate
  int64_t first_sequence = 0;             ///< of this rank's, which lie side by side, in the global batch
  uint64_t dropout_key = 0;               ///< of (seed, step); equal on all ranks
  uint32_t votes = 0;  ///< what this rank wants after this step, a bit each; the trainer knows their meaning
};

struct StepResult {
  double loss = 0;       ///< mean over all tokens of the global batch; equal on all ranks
  double grad_norm = 0;  ///< L2 over all parameters, before clipping; equal on all ranks
  bool finite = true;    ///< loss and norm are finite, or the step was skipped as it is to be
  bool skipped = false;  ///< no update was made (loss scaler, or skip_nonfinite)
  uint32_t votes = 0;    ///< every bit that some rank has set; equal on all ranks
  double loss_scale = 1.0;
};

/// Elements [begin, begin + count) of an array in this rank's file on NVMe, in place of a tensor.
struct SwappedSpan {
  std::shared_ptr<SwappedArrays> file;
  size_t array = 0;
  int64_t begin = 0, count = 0;
};

/// A tensor of the training state that (part of) lives on this rank: elements [offset, offset + local.numel()) of the
/// flattened global tensor. Of replicated elements each is written by one rank only: [write_begin, write_end) relative
/// to `local`.
struct StateTensor {
  std::string name;  ///< "param/NAME", "optimizer/exp_avg/NAME"
  std::vector<int64_t> global_shape;
  int64_t offset = 0;
  torch::Tensor local;  ///< contiguous, 1-d; undefined where the elements are in a file
  int64_t write_begin = 0, write_end = 0;
  std::optional<SwappedSpan> swapped = {};  ///< fp32
  bool optional = false;                    ///< keeps its values where a checkpoint does not have it

  int64_t numel() const { return swapped ? swapped->count : local.numel(); }
  /// Elements [begin, begin + count) of the local ones: a copy in host memory.
  torch::Tensor read(int64_t begin, int64_t count) const;
  /// Overwrites elements [begin, ...) with a 1-d tensor in host memory, of any dtype.
  void write(int64_t begin, const torch::Tensor& values) const;
};

/// Is told of a strategy's steps, at the same points on every rank, in the thread that called step().
class StepObserver {
 public:
  /// What becomes of an update; equal on all ranks.
  struct Decision {
    bool skip = false;     ///< leave it out
    double lr_factor = 1;  ///< in place of StepInput's
  };
  virtual ~StepObserver() = default;
  virtual void before_backward() {}  ///< of each micro-batch, after its forward
  virtual void after_backward() {}   ///< of each micro-batch; the sums over ranks may not be there yet
  using Gradients = std::function<std::vector<StateTensor>()>;
  /// `gradients` lists this rank's, "gradient/NAME", during the call: summed over ranks, times `scale`; before norm,
  /// clipping and the finite check, so what is changed in them counts. `lr_factor` is StepInput's.
  virtual Decision before_optimizer_step(const Gradients& gradients, double scale, double lr_factor) = 0;
};

class Strategy {
 public:
  explicit Strategy(StrategySetup setup);
  virtual ~Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  /// Places parameters on their devices and fills them. Collective.
  virtual void module_to_device() = 0;
  /// One optimizer step. Collective. Throws what a rank's forward or a collective throws, and NonFiniteError where
  /// gradients overflow at the smallest loss scale. What an update throws that has outlasted its step is thrown by the
  /// calls after it: step, evaluate, state, state_to_save, state_loaded, teardown.
  virtual StepResult step(const StepInput& input);
  /// Summed loss over this rank's micro-batch, no gradients kept. Collective for sharded strategies: every rank calls
  /// it equally often; an undefined micro-batch gives 0.
  double evaluate(const MicroBatch& batch);
  /// Logits [B, vocab] fp32 of what follows position `position` of inputs int64 [B, T] on the device, without dropout.
  /// Collective for sharded strategies: every rank calls it equally often.
  torch::Tensor logits(const torch::Tensor& inputs, int64_t position);
  /// Lists the training state, of which no update is left to do; a later step may replace values at any time after it
  /// has begun. The trainer saves and loads through it. Loading writes all of it and then calls state_loaded().
  std::vector<StateTensor> state();
  virtual void state_loaded() {}
  /// The parameters among it, "param/NAME". Who writes to them calls state_loaded() on all ranks, between steps.
  std::vector<StateTensor> parameters();
  /// From the next step on; null: nobody. Outlives the steps it is told of.
  void observe(StepObserver* observer) { observer_ = observer; }
  /// From the next step on, in place of cross entropy; empty: that again. evaluate() keeps cross entropy, so that
  /// trainings with different losses compare. What it throws comes out of step() on the rank that it is thrown on.
  void use_loss(TokenLoss loss) { token_loss_ = std::move(loss); }
  /// What this rank writes to a checkpoint: its own state, or, where the strategy saves whole tensors, all of it on
  /// rank 0 in host memory and nothing on the others. Collective then.
  std::vector<StateTensor> state_to_save();
  /// Non-tensor state: optimizer step count, loss scale. Equal on all ranks.
  nlohmann::json scalars() const;
  void load_scalars(const nlohmann::json& scalars);
  /// Ends the last update and lets go of what the strategy holds.
  virtual void teardown() {}

  // Lightning's verbs of a strategy, over all ranks.
  torch::Tensor reduce(torch::Tensor tensor, c10d::ReduceOp op = c10d::ReduceOp::SUM);
  torch::Tensor all_gather(const torch::Tensor& tensor);  ///< [world, ...]
  torch::Tensor broadcast(torch::Tensor tensor, int source = 0);
  void barrier();

 protected:
  /// A tensor the optimizer updates, and where it lies in its parameter.
  struct LocalParameter {
    size_t slot;     ///< of the model
    int64_t offset;  ///< in the flattened parameter
    int64_t numel;
    torch::Tensor value;  ///< 1-d contiguous; undefined where it is in a file
    std::optional<SwappedSpan> swapped = {};
  };

  // ---- hooks
  /// Before a micro-batch: `last` is the one after which gradients must be reduced.
  virtual void begin_micro_batch(bool last) = 0;
  /// Makes block `index` usable, runs it, releases it. The default runs it, with activation checkpointing where asked.
  virtual torch::Tensor run_block(size_t index, const torch::Tensor& x, const ForwardContext& context);
  /// The loss tensor is about to go backward.
  virtual void before_backward(const torch::Tensor& loss) { (void)loss; }
  /// After the backward of a micro-batch.
  virtual void end_micro_batch(bool last) { (void)last; }
  /// All gradients are reduced when it returns: one per local parameter, in order, same shape.
  virtual std::vector<torch::Tensor> finish_gradients() = 0;
  /// Whether this rank's gradients count in the norm's sum over ranks (replicas count once).
  virtual bool counts_in_norm() const = 0;
  /// The same of one local parameter, where they differ in it.
  virtual bool counts_in_norm(size_t local) const {
    (void)local;
    return counts_in_norm();
  }
  /// State of the strategy's own, listed after parameters and optimizer state; and what of it is no tensor (null:
  /// nothing), equal on all ranks.
  virtual std::vector<StateTensor> own_state() { return {}; }
  virtual nlohmann::json own_scalars() const { return nullptr; }
  virtual void load_own_scalars(const nlohmann::json& scalars) { (void)scalars; }
  /// Makes new values of finish_gradients()' sums; or begins to, if settle() ends it.
  virtual void update(std::vector<torch::Tensor> gradients, double lr_factor, double gradient_divisor) {
    optimizer_.step(gradients, lr_factor, gradient_divisor);
  }
  /// No update is left to do when it returns. Throws what one has thrown.
  virtual void settle() {}
  /// Gradients may be dropped now. `updated`: update() has been called, on every rank; else the step was skipped.
  virtual void after_update(bool updated) = 0;
  /// The part of a local parameter that this rank writes to checkpoints; the default splits nothing.
  virtual std::pair<int64_t, int64_t> write_range(const LocalParameter& parameter) const {
    return {0, parameter.numel};
  }

  /// Whether checkpoints are one file of whole tensors (state_dict_type = "full") instead of each rank's own.
  virtual bool saves_whole() const { return false; }

  // ---- for derived classes
  /// Every parameter as a leaf tensor of its own on the device, filled and registered.
  void place_whole_copy();
  /// Registers a local tensor with the optimizer, and where its updates are to be copied to in another dtype, if
  /// anywhere. Order = order of finish_gradients().
  void add_local(size_t slot, int64_t offset, const torch::Tensor& value, const torch::Tensor& copy = {});
  /// The same where the optimizer's state is in a file, at `begin` of its arrays, and maybe the value too (then
  /// undefined).
  void add_swapped(size_t slot, int64_t offset, int64_t begin, int64_t count, const torch::Tensor& value,
                   const torch::Tensor& copy);
  /// Fills a 1-d tensor with elements [offset, ...) of a parameter, through `source`, in bounded pieces.
  void fill(size_t slot, int64_t offset, const torch::Tensor& value);
  int64_t optimizer_steps() const { return optimizer_.steps(); }
  double loss_scale() const { return scaler_.scale(); }
  /// Runs block `index` with its autograd graph, or as a checkpoint that recomputes it in backward.
  torch::Tensor forward_block(size_t index, const torch::Tensor& x, const ForwardContext& context);

  World& world_;
  Model& model_;
  Job job_;
  Optimizer optimizer_;
  ParameterSource source_;
  std::vector<LocalParameter> locals_;

 private:
  /// One for each local parameter, "KIND/NAME", without values.
  std::vector<StateTensor> pieces(const std::string& kind) const;
  StepObserver::Decision ask_observer(const std::vector<torch::Tensor>& gradients, double lr_factor) const;
  torch::Tensor forward(const MicroBatch& batch, const ForwardContext& context);
  /// A row of ignored targets, so that a rank without data takes part in every collective of the step.
  MicroBatch empty_batch() const;
  double backward_all(const StepInput& input);
  /// Sums this rank's words over ranks, in rank order (all-gather), so that every rank gets the same bits. Digests of
  /// what each rank called travel with them: throws Error(run_failed) when ranks diverged.
  struct Control {
    double loss = 0, squared_norm = 0;
    uint32_t votes = 0;
    bool finite = true;
  };
  Control exchange(double loss, double squared_norm, uint32_t votes);
  /// Sum of the squares of this rank's part of the gradients, as far as it counts.
  double squared_norm(const std::vector<torch::Tensor>& gradients) const;
  /// Collective. Throws NonFiniteError naming the first parameter whose gradient is not finite.
  void fail_at_floor(const std::vector<torch::Tensor>& gradients);

  std::optional<double> clip_norm_, clip_value_;
  bool skip_nonfinite_;
  LossScaler scaler_;
  std::optional<HostCheckpoints> host_checkpoints_;  ///< where the job's inputs of recomputed blocks wait there
  StepObserver* observer_ = nullptr;
  TokenLoss token_loss_;
};

/// Makes the strategy of that name (registry.cpp). Throws std::logic_error for an unknown name: selection has checked
/// it.
std::unique_ptr<Strategy> make_strategy(const std::string& name, StrategySetup setup);

}  // namespace runner
