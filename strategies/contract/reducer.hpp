// The communication of a strategy that does not sum gradients as its plan says: of gradients during backward, and of parameters
// after the update.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/bucket_item.hpp"

namespace runner {

struct StateTensor;

/// It may have state. Every rank makes the same calls in the same order, in the thread that called Strategy::step().
class Reducer {
 public:
  /// The tensors of a unit of the plan. All are 1-d, exist between steps, and have zeros in the gaps of the unit's layout
  /// (flat_layout.hpp).
  struct Bucket {
    std::vector<BucketItem> items = {};  ///< ascending
    torch::Tensor parameters;            ///< of all ranks
    torch::Tensor gradients;             ///< of this rank; after the reduction the sums over ranks
    torch::Tensor shard;  ///< defined if the unit is sharded: this rank's part of the sums, which the optimizer uses
  };
  /// Values of the strategy that the reducer can read.
  struct Host {
    std::function<int64_t()> steps;      ///< optimizer steps done
    std::function<double()> loss_scale;  ///< gradients are multiplied by it
    /// This rank's part of StepInput::weight, in the current step. Its gradients divided by this are those of the mean over its own
    /// rows.
    std::function<double()> share;
    /// Turns the gradients of a bucket into what Adam's first moment would become with them: beta1 m + (1 - beta1) g.
    std::function<void(size_t bucket, torch::Tensor& gradients)> to_momentum = {};
  };
  virtual ~Reducer() = default;
  /// Called once, before the first step and before a checkpoint is loaded. Buckets are in the order of their reduction.
  virtual void prepare(std::vector<Bucket> buckets, const torch::TensorOptions& options, Host host) = 0;
  /// Starts the reduction of a bucket, while the backward of earlier blocks continues.
  virtual void begin(size_t bucket) = 0;
  /// Called for every bucket in order, after begin() of the last one. The sums must be there when it returns.
  virtual void finish(size_t bucket) = 0;
  /// Called after an update of the parameters, when shards are gathered. Not called after a skipped step.
  virtual void after_update() {}
  /// Whether each rank trains a different copy of the model. Checkpoints then contain all of them.
  virtual bool replicas_differ() const { return false; }
  virtual std::vector<StateTensor> state() = 0;
  virtual nlohmann::json scalars() const = 0;
  virtual void load_scalars(const nlohmann::json& scalars) = 0;
  /// Waits for all collectives that it has started.
  virtual void teardown() {}
};

}  // namespace runner
