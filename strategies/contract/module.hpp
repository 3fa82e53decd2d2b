// The model that strategies run: an ordered chain of blocks, and parameter slots that the strategy fills.
//
// A Model is built without storage. The strategy decides how a parameter is stored (view of a flat buffer, freed until gathered)
// and puts a tensor into its slot. A node at the end of the parameter's graph receives its gradient (executor/block_graphs.hpp).
// Blocks read the slots at every forward. Tied weights are one slot that two blocks use; their two gradients are added.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/model_spec.hpp"
#include "strategies/contract/weight_gradients.hpp"

namespace runner {

/// One micro-batch on the device.
struct MicroBatch {
  int64_t rows = 0;
  bool padding = false;  ///< the only row stands for no sample (BatchField::padding)
  /// The fields of ModelSpec::batch, in that order: [rows, shape of a row]. A block asks for the index of a field once, when it is
  /// made (ModelSpec::batch_field()).
  std::vector<torch::Tensor> fields = {};
  /// The fields in host memory, for what a block decides on the host. On CPUs they are the same tensors.
  std::vector<torch::Tensor> host_fields = {};
  /// If several ranks divide the tokens of the rows (ContextAxis), `fields` have this rank's tokens [rows, own], and always
  /// token_field::positions. This is then the length of the rows with their padding, and if the rows are packed, the positions of all
  /// their tokens [rows, padded_tokens], in host memory.
  int64_t padded_tokens = 0;
  int64_t row_tokens = 0;  ///< the length without padding
  torch::Tensor all_positions = {};
};

/// A per-token loss [n] that replaces cross entropy. Arguments: logits [n, vocab] in fp32 (fp64 in fp64 models), and targets
/// int64 [n], without ignored ones. The result must be differentiable with respect to the logits.
using TokenLoss = std::function<torch::Tensor(const torch::Tensor& logits, const torch::Tensor& targets)>;

/// The ranks that share the model's matrices (tensor_axis.hpp).
class TensorAxis;
/// The ranks that share the tokens of each row (context_axis.hpp).
class ContextAxis;
/// Keys and values of earlier tokens (runner/models/key_value_cache.hpp).
class KeyValueCache;

/// Arguments of a forward pass, in addition to the block's input.
struct ForwardContext {
  const MicroBatch* batch = nullptr;
  bool training = true;
  /// Derived from (seed, step). A block combines it with the block index, and indexes dropout masks by the position of a row in
  /// the global batch. So masks do not depend on the number of ranks or micro-batches, and recomputation repeats them.
  uint64_t dropout_key = 0;
  int64_t first_row = 0;                  ///< index of the micro-batch's first row in the global batch
  const TokenLoss* token_loss = nullptr;  ///< replaces cross entropy if not null
  /// The block runs only for its graph (recomputation): nothing reads the values of its output, so its last product is not computed.
  bool output_unused = false;
  bool recomputes = false;                  ///< this forward repeats an earlier one of the same micro-batch
  std::optional<int64_t> logits_of = {};    ///< if set, the head returns the logits at this position instead of a loss
  const TensorAxis* tensor_axis = nullptr;  ///< set if several ranks share the model's matrices (ModelSpec::division)
  const ContextAxis* context_axis =
      nullptr;  ///< set if several ranks share the tokens of the batch (ModelSpec::context)
  /// If not null, the batch continues the sequences in the cache, and attention adds its keys and values. Without gradients.
  KeyValueCache* cache = nullptr;
  /// If not null, the backward leaves the products for the gradients of matrices to it.
  WeightGradients::Pointer weight_gradients = {};
};

class Block {
 public:
  virtual ~Block() = default;
  /// embedding: x undefined -> [B, T, dim]; transformer: [B, T, dim] -> [B, T, dim]; head: [B, T, dim] -> scalar fp32, the loss
  /// summed over everything that counts in the batch (StepInput::weight), or [B, vocab] fp32 if logits_of is set. With sequence
  /// parallelism, [rows of the stream, dim] stands in place of [B, T, dim] (TensorAxis). In validation a head may return more sums, [n],
  /// of which the first one is the loss. The summed loss of a row with BatchField::padding in all fields is 0.
  virtual torch::Tensor forward(const torch::Tensor& x, const ForwardContext& context) = 0;
};

/// The values that the forward passes of a step hand over for ModelSpec::buffers. Their mean over all micro-batches and ranks moves the
/// buffers.
class StepStatistics {
 public:
  void add(size_t buffer, const torch::Tensor& value) {
    if (sums_.size() <= buffer) sums_.resize(buffer + 1), counts_.resize(buffer + 1);
    const auto wide = value.to(torch::kFloat32);
    sums_[buffer] = sums_[buffer].defined() ? sums_[buffer] + wide : wide;
    ++counts_[buffer];
  }
  /// The sum and the number of values of a buffer; undefined and 0 without any.
  std::pair<torch::Tensor, int64_t> of(size_t buffer) const {
    return buffer < sums_.size() ? std::pair(sums_[buffer], counts_[buffer]) : std::pair(torch::Tensor(), int64_t{0});
  }
  void clear() { sums_.clear(), counts_.clear(); }

 private:
  std::vector<torch::Tensor> sums_;
  std::vector<int64_t> counts_;
};

class Model {
 public:
  explicit Model(ModelSpec spec) : spec(std::move(spec)), slots(this->spec.parameters().size()) {}
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelSpec spec;
  /// The tensors of spec.parameters(), in that order; undefined until a strategy sets them.
  std::vector<torch::Tensor> slots;
  /// The complete model, whose blocks and slots this one uses, if this one is a stage of a pipeline.
  std::unique_ptr<Model> whole;
  /// Puts a parameter into its slot.
  void place(size_t slot, const torch::Tensor& value) {
    slots[slot] = value;
    if (whole) whole->slots[spec.stage->slot_of[slot]] = value;
  }
  /// The tensors of spec.buffers, in that order, fp32. The strategy makes and changes them.
  std::vector<torch::Tensor> buffers;
  StepStatistics statistics;
  /// Adds a tensor of the same shape of all ranks in place. The strategy sets it. Every rank must call it equally often.
  std::function<void(torch::Tensor&)> sum_over_ranks = {};
  /// The blocks of spec.blocks, in that order. They have references to elements of `slots`.
  std::vector<std::unique_ptr<Block>> blocks;
};

/// The part of a complete model that one rank of a pipeline has. `spec`: stage_spec() of the model's.
inline std::unique_ptr<Model> stage_of(std::unique_ptr<Model> whole, ModelSpec spec) {
  auto model = std::make_unique<Model>(std::move(spec));
  for (size_t block : model->spec.stage->block_of) model->blocks.push_back(std::move(whole->blocks[block]));
  model->whole = std::move(whole);
  return model;
}

}  // namespace runner
