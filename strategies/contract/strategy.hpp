// The engine on LibTorch (engine.hpp): optimizer steps, validation, and the training state. This base class does what does not
// depend on the plan; the executor (strategies/executor) runs the plan's program.
//
//   step: forward and backward of all micro-batches -> finish_gradients -> norm
//         -> one exchange of control words (all ranks) -> finite check, clipping -> update -> after_update
//
// An update may still run when step() returns. Code that uses its results calls settle() first, or waits for the part
// that it needs.
//
// Gradients are those of the summed loss of the global batch divided by its weight: the summed loss of every micro-batch is
// multiplied by 1 / StepInput::weight, and reductions SUM over ranks. Nothing is divided by the world size or by a number of
// rows, so rows with few targets and a short last batch count as they should, and every strategy computes the same numbers.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/span_recorder.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/world.hpp"
#include "strategies/contract/additions.hpp"
#include "strategies/contract/context_axis.hpp"
#include "strategies/contract/conversion.hpp"
#include "strategies/contract/entry.hpp"
#include "strategies/contract/initialize.hpp"
#include "strategies/contract/loss_scaler.hpp"
#include "strategies/contract/module.hpp"
#include "strategies/contract/optimizer.hpp"
#include "strategies/contract/state_tensor.hpp"
#include "strategies/contract/tensor_axis.hpp"

namespace runner {

/// Arguments of a strategy's constructor. The references must outlive the strategy.
struct StrategySetup {
  World& world;
  Model& model;
  Job job;  ///< the description of the same run that entries use: precision, accumulation, options ...
  OptimizerConfig optimizer;
  ParameterSource source;
  std::optional<double> clip_norm = {}, clip_value = {};
  bool skip_nonfinite = false;                  ///< train.on_nonfinite = "skip"
  LossScalePolicy loss_scale = {};              ///< used if precision.loss_scaling is set
  std::shared_ptr<Reducer> reducer = {};        ///< null: gradients are summed according to the plan
  std::shared_ptr<Extension> extension = {};    ///< what a strategy in Lua adds without reducing gradients, or null
  std::shared_ptr<Conversion> conversion = {};  ///< of the model's converted parameters, and of gradients, or null
  std::function<void(const std::string&)> note = {};  ///< tells the user something; may be empty
  SpanRecorder* spans = nullptr;  ///< records what each part of a step takes; null: nothing is recorded
};

/// Callbacks during a step. They are called at the same points on every rank, in the thread that called step().
class StepObserver {
 public:
  /// How to update; must be equal on all ranks.
  struct Decision {
    bool skip = false;     ///< make no update
    double lr_factor = 1;  ///< replaces StepInput::lr_factor
  };
  virtual ~StepObserver() = default;
  /// If false, the next step may be one program that nothing interrupts: before_backward() and after_backward() may be left out, and
  /// before_optimizer_step() may be called before the forward, without gradients. Then it must not skip the update. Equal on all ranks.
  virtual bool sees_gradients() const { return true; }
  virtual void before_backward() {}  ///< for each micro-batch, after its forward
  virtual void after_backward() {}   ///< for each micro-batch; reductions over ranks may still be in flight
  using Gradients = std::function<std::vector<StateTensor>()>;
  /// `gradients` may be called during this call. It lists this rank's gradients as "gradient/NAME": summed over ranks,
  /// multiplied by `scale`. The norm, the clipping and the finite check come later and use the changed values.
  /// `lr_factor` is StepInput's.
  virtual Decision before_optimizer_step(const Gradients& gradients, double scale, double lr_factor) = 0;
};

class Strategy : public Engine {
 public:
  explicit Strategy(StrategySetup setup);
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  /// Allocates the parameters on their devices and writes the initial values. Collective.
  virtual void module_to_device() = 0;

  // ---- Engine
  int data_rank() const override { return job_.mesh.data_rank(world_.rank); }
  int data_ranks() const override { return job_.mesh.data_ranks(); }
  StepResult step(const StepInput& input) override;
  double evaluate(const HostBatch& batch) override { return evaluate_sums(batch).front(); }
  std::vector<double> evaluate_sums(const HostBatch& batch) override;
  std::vector<float> logits(const HostBatch& batch, int64_t position) override;
  std::vector<StateView> state_views() override { return views_of(state()); }
  std::vector<StateView> views_to_save() override;
  nlohmann::json scalars() const override;
  void load_scalars(const nlohmann::json& scalars) override;
  double sum_over_ranks(double value) override { return sums_over_ranks({value}).front(); }
  std::vector<double> sums_over_ranks(std::vector<double> values) override;
  void barrier() override;
  bool replicas_differ() const override { return additions_.replicas_differ(); }

  // ---- what hooks need of LibTorch
  /// The tensors behind state_views().
  std::vector<StateTensor> state();
  /// The "param/NAME" tensors of state(). After writing to them, between steps, call state_loaded() on all ranks.
  std::vector<StateTensor> parameters();
  /// Sets the observer of later steps; null removes it. It must outlive those steps.
  void observe(StepObserver* observer) { observer_ = observer; }
  /// Replaces cross entropy in later steps; an empty function restores it. evaluate() always uses cross entropy, so
  /// that trainings with different losses can be compared. If `loss` throws on a rank, step() throws on that rank.
  void use_loss(TokenLoss loss) { token_loss_ = std::move(loss); }

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
  /// Runs the blocks without gradients. Returns the output of the last block. In a pipeline only the last
  /// stage has losses, but all stages get logits.
  virtual torch::Tensor forward(const ForwardContext& context) = 0;
  /// A micro-batch and the arguments of its forward.
  struct TrainedBatch {
    MicroBatch batch;
    ForwardContext context;  ///< refers to `batch`
  };
  /// Forward and backward of all micro-batches, with each loss multiplied by `loss_factor`. Returns the sum of this rank's
  /// losses, fp64, not multiplied.
  virtual torch::Tensor accumulate_gradients(const std::vector<TrainedBatch>& micro_batches, double loss_factor) = 0;
  /// Waits for the reductions. Returns one gradient for each trained local parameter, in order, in the shape of that parameter.
  virtual std::vector<torch::Tensor> finish_gradients() = 0;
  /// Since the last call, if OptimizerConfig::adascale is set.
  virtual OwnSquares take_own_squares() = 0;
  /// Whether the gradient of a local parameter on this rank is added to the norm over all ranks (only one replica must be
  /// added). Replicas on the tensor axis are counted here already.
  virtual bool counts_in_norm(size_t local) const = 0;
  /// Updates the parameters with the result of finish_gradients(). May return before the update has ended; settle()
  /// then waits.
  virtual void update(std::vector<torch::Tensor> gradients, double lr_factor, double gradient_divisor) = 0;
  /// Waits until the last update has ended. Throws the exception of an update that failed.
  virtual void settle() = 0;
  /// Called at the end of a step; gradients may be freed. `updated` (equal on all ranks): update() was called, the step
  /// was not skipped.
  virtual void after_update(bool updated) = 0;
  /// Data ranks that have the same elements of a local parameter share the work of writing them to checkpoints: this rank is number
  /// `first` of `second` such ranks. {0, 0}: it writes nothing.
  virtual std::pair<int, int> writer(size_t local) const = 0;
  /// Whether a checkpoint is one file of unsharded tensors (state_dict_type = "full") instead of one file for each
  /// rank.
  virtual bool saves_whole() const = 0;

  // ---- for derived classes
  /// Registers a local tensor with the optimizer. `copy` (optional) is a tensor of another dtype to which each update
  /// also writes the new values. Call this in the order of finish_gradients().
  void add_local(size_t slot, int64_t offset, const torch::Tensor& value, const torch::Tensor& copy = {});
  /// Registers a local tensor as add_local() does, but with its optimizer state in a file, at element `begin` of the file's arrays.
  /// `value` is undefined if it is in the file too.
  void add_swapped(size_t slot, int64_t offset, int64_t begin, int64_t count, const torch::Tensor& value,
                   const torch::Tensor& copy);
  /// Registers a local tensor of a frozen parameter, after all others. It is a part of the training state, without gradient and optimizer
  /// state. `begin`: of its range in the file, if `value` is undefined.
  void add_frozen(size_t slot, int64_t offset, int64_t begin, int64_t count, const torch::Tensor& value);
  /// Sets the ranks that share the model's matrices with this one. Call it before any forward if ModelSpec::division divides.
  void use_tensor_axis(ProcessGroup group) { tensor_.emplace(std::move(group), model_.spec.division); }
  /// Sets the ranks that share the tokens of each row with this one. Call it before any forward if ModelSpec::context divides.
  void use_context_axis(ProcessGroup group, ContextRing ring) {
    context_.emplace(std::move(group), model_.spec.context, std::move(ring));
  }
  /// Writes the initial values of elements [offset, offset + value.numel()) of this rank's part of a parameter to `value` (1-d), in
  /// bounded pieces.
  void fill(size_t slot, int64_t offset, const torch::Tensor& value);
  /// For optimizers that average: puts the averages of all parameters, or what is trained, in place. Collective if forward is.
  void use_average();
  void use_trained();
  /// Only the masters of what is trained. use_trained() updates the copies later.
  void restore_masters();
  /// The piece of a state of a local parameter of which this rank has all, or blocks: without values.
  StateTensor optimizer_piece(size_t local, const OptimizerState& state) const;
  /// Allocates Model::buffers and writes the initial values.
  void make_buffers();
  /// state() without buffers and additions.
  std::vector<StateTensor> trained_state();
  /// Calls `work` in a span.
  template <typename Work>
  auto timed(const SpanName& name, Work&& work) {
    const SpanScope span(spans_, name);
    return work();
  }
  /// Whether this rank has the last block of the model.
  bool has_loss() const { return !model_.spec.stage || model_.spec.stage->has_last; }
  // ---- parts of step(), for an engine that has one of its own
  std::vector<TrainedBatch> micro_batches_of(const StepInput& input) const;
  /// Sums the control words of all ranks.
  struct Control {
    double loss = 0, squared_norm = 0;
    uint32_t votes = 0;
    bool finite = true;
  };
  Control exchange(double loss, double squared_norm, uint32_t votes);
  /// The observer's decision; without an observer, an update with `lr_factor`.
  StepObserver::Decision ask_observer(const std::vector<torch::Tensor>& gradients, double lr_factor) const;
  /// The values that additions can read, without `to_momentum` and `shapes`.
  Extension::Host host_of_additions();

  World& world_;
  Model& model_;
  Job job_;
  Optimizer optimizer_;
  Additions additions_;  ///< their scalars are fields of scalars()
  ParameterSource source_;
  std::vector<LocalParameter> locals_;  ///< the trained ones, in the order of their gradients, and then the frozen ones
  size_t trained_ = 0;                  ///< number of trained ones
  std::shared_ptr<Conversion> conversion_;  ///< or null
  StepObserver* observer_ = nullptr;
  SpanRecorder* spans_;
  std::optional<double> clip_norm_, clip_value_;
  bool skip_nonfinite_;

  double loss_scale() const { return scaler_.scale(); }
  /// Collective. The end of a step. `result.finite`: loss and gradients are finite; it becomes false only if that is an
  /// error. `skip_wanted`: the observer has skipped the update. `gradients` gives this rank's for a message, and is
  /// called only if they overflow at the smallest scale: then throws NonFiniteError.
  void settle_loss_scale(StepResult& result, bool skip_wanted,
                         const std::function<std::vector<torch::Tensor>()>& gradients);

 private:
  /// Elements [begin, begin + count) of a local parameter, which are in one slice of the whole parameter, from `offset` on.
  struct Piece {
    int64_t begin, count;
    TensorSlice slice;
    int64_t offset;
  };
  std::vector<Piece> pieces_of(const LocalParameter& local) const;
  /// The values of a local parameter that a StateTensor is made of: a 1-d tensor, or a span of a file.
  struct Values {
    torch::Tensor tensor = {};
    std::optional<SwappedSpan> swapped = {};
  };
  /// Adds the pieces "KIND/NAME" of a local parameter, with `values` for its elements.
  void add_pieces(std::vector<StateTensor>& list, const std::string& kind, size_t local, const Values& values) const;
  std::pair<int64_t, int64_t> write_range(size_t local, int64_t n) const;
  /// Whether this rank's loss is added to those of other ranks. Ranks that share matrices compute the same loss; those that share rows
  /// compute the losses of their tokens.
  bool counts_loss() const { return has_loss() && job_.mesh.coordinate(world_.rank, Axis::tensor) == 0; }
  /// Several ranks of the tensor axis or of the pipeline can have the same part of a parameter. Whether this rank is the first of them.
  bool is_first_replica(size_t slot) const {
    const auto& spec = *model_.spec.parameters()[slot];
    return !spec.copied && (!spec.part || spec.part->replica == 0);
  }
  const TensorAxis* tensor_axis() const { return tensor_ ? &*tensor_ : nullptr; }
  const ContextAxis* context_axis() const { return context_ ? &*context_ : nullptr; }
  /// Lets the conversion change the gradients in place.
  void convert_gradients(const std::vector<torch::Tensor>& gradients);
  /// The tokens of each row of a batch: all, or those that this rank of the context axis has.
  enum class Tokens { all, own };
  /// Copies the fields that the model needs to the device. An empty micro-batch is replaced by one row of BatchField::padding, so that this
  /// rank calls every collective of the step. Throws Error(run_failed) if a field is missing or has another element type.
  MicroBatch to_device(const HostBatch& batch, Tokens tokens) const;
  /// The fields that the model needs, in host memory, pinned if the device has such copies and they are copied as they are.
  std::vector<torch::Tensor> host_fields(const HostBatch& batch) const;
  /// Sum of the squares of this rank's gradients for which counts_in_norm() is true.
  double squared_norm(const std::vector<torch::Tensor>& gradients) const;
  /// Collective. The gain of an update whose gradients have that squared norm, over all ranks.
  double adascale_gain(const OwnSquares& own, double squared_norm);
  /// Collective. Moves the buffers towards the mean of what the forward passes of the step handed over: momentum 0.1, as in PyTorch.
  /// Without `takes`, drops it.
  void move_buffers(bool takes);
  std::vector<StateTensor> buffer_state() const;
  /// The state of the additions, and with differing replicas all of this rank's replica.
  std::vector<StateTensor> own_state();
  /// Collective. Throws NonFiniteError naming the first parameter whose gradient is not finite.
  void fail_at_floor(const std::vector<torch::Tensor>& gradients);

  /// While the average is in place: the masters of what is trained.
  std::vector<torch::Tensor> set_aside_;
  bool copies_are_average_ = false;
  double share_ = 1;               ///< this rank's part of the weight of the current step's loss
  int64_t weight_ = 0, rows_ = 0;  ///< of the step: StepInput::weight, and the rows of this rank
  LossScaler scaler_;
  std::optional<AdaScale> adascale_;
  TokenLoss token_loss_;
  std::optional<TensorAxis> tensor_;
  std::optional<ContextAxis> context_;
};

/// Makes the strategy with that name (registry.cpp). An unknown name is a bug of the caller and throws
/// std::logic_error.
std::unique_ptr<Strategy> make_strategy(const std::string& name, StrategySetup setup);

}  // namespace runner
