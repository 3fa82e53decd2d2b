// Additions to the steps of a plan: an Extension works before the first step and after each update, with state in checkpoints, and a
// Reducer also communicates gradients during backward.
#pragma once
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/bucket_item.hpp"

namespace runner {

struct StateTensor;

/// An extension may have state. Every rank makes the same calls in the same order, in the thread that called Strategy::step().
class Extension {
 public:
  /// The tensors of a unit of the plan. All are 1-d, exist between steps, and have zeros in the gaps of the unit's layout
  /// (flat_layout.hpp).
  struct Bucket {
    std::vector<BucketItem> items = {};  ///< ascending
    torch::Tensor parameters;  ///< of all ranks; undefined if the ranks have only shards of their masters between steps
    torch::Tensor gradients;   ///< of this rank; after the reduction the sums over ranks. Undefined without a Reducer
    torch::Tensor shard;  ///< defined if the unit is sharded: this rank's part of the sums, which the optimizer uses
  };
  /// Values of the strategy that the extension can read.
  struct Host {
    std::function<int64_t()> steps;      ///< optimizer steps done
    std::function<double()> loss_scale;  ///< gradients are multiplied by it
    /// This rank's part of StepInput::weight, in the current step. Its gradients divided by this are those of the mean over its own
    /// rows.
    std::function<double()> share;
    /// Turns the gradients of a bucket into what Adam's first moment would become with them: beta1 m + (1 - beta1) g.
    std::function<void(size_t bucket, torch::Tensor& gradients)> to_momentum = {};
    /// Strategy::parameters(): what this rank stores of each.
    std::function<std::vector<StateTensor>()> parameters = {};
    std::function<int64_t()> rows = {};    ///< of this rank, in the current step
    std::function<int64_t()> weight = {};  ///< StepInput::weight of the current step
    /// The parameters and the optimizer state of this rank, without buffers. Their tensors are those in use.
    std::function<std::vector<StateTensor>()> trained_state = {};
    /// All ranks call it after they wrote to parameters or state, between updates. `steps`: optimizer steps done from now on.
    std::function<void(int64_t steps)> state_written = {};
    std::map<std::string, std::vector<int64_t>> shapes = {};  ///< of the parameters that checkpoints contain, by name
    int local_size = 1;  ///< ranks of a node; the ranks of a node follow one another
  };
  virtual ~Extension() = default;
  /// Called once, before the first step and before a checkpoint is loaded. Buckets are in the order of their reduction.
  virtual void prepare(std::vector<Bucket> buckets, const torch::TensorOptions& options, Host host) = 0;
  /// Called before the forward passes of a step. It may write to parameters and optimizer state (Host::state_written).
  virtual void before_step() {}
  /// Called after an update of the parameters, when shards are gathered. Not called after a skipped step.
  virtual void after_update() {}
  /// Whether each rank trains a different copy of the model. Checkpoints then contain all of them.
  virtual bool replicas_differ() const { return false; }
  /// Whose state it is, in checkpoints and messages: "powerSGD_hook", "lua:topk". State of another name is not loaded.
  virtual std::string name() const = 0;
  virtual std::vector<StateTensor> state() = 0;
  virtual nlohmann::json scalars() const = 0;
  virtual void load_scalars(const nlohmann::json& scalars) = 0;
  /// Waits for all collectives that it has started.
  virtual void teardown() {}
};

/// An extension that also reduces the gradients.
class Reducer : public Extension {
 public:
  /// Starts the reduction of a bucket, while the backward of earlier blocks continues.
  virtual void begin(size_t bucket) = 0;
  /// Called for every bucket in order, after begin() of the last one. The sums must be there when it returns.
  virtual void finish(size_t bucket) = 0;
  /// Called after finish() of all buckets. False: gradients are still being collected, so this step makes no update. Its loss and its norm
  /// are reported, and it counts as skipped.
  virtual bool makes_update() { return true; }
  /// Which update the next one is, from 1 on, if others than this rank's steps count: the schedule of the learning rate follows it.
  virtual std::optional<int64_t> update_number() const { return std::nullopt; }
};

}  // namespace runner
