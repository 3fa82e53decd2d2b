// The model as strategies run it: an ordered chain of blocks over parameter slots that the strategy fills.
//
// A Model is built without storage. Strategies decide where a parameter lives (own tensor, view of a flat buffer, freed
// until gathered) and put a leaf tensor with requires_grad into its slot; blocks look their tensors up at every
// forward. Tied weights are one slot used by two blocks, so autograd adds both gradients into the same leaf.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/model_spec.hpp"

namespace runner {

/// One micro-batch on the device: token ids and next-token targets, both int64 [B, T]. Targets of -100 are ignored.
struct MicroBatch {
  torch::Tensor inputs;
  torch::Tensor targets;
};

/// Losses [n] of tokens, in place of cross entropy: from logits [n, vocab] in fp32 (fp64 in fp64 models) and targets
/// int64 [n], none of them ignored. Differentiable where the logits are.
using TokenLoss = std::function<torch::Tensor(const torch::Tensor& logits, const torch::Tensor& targets)>;

/// What a block may need besides its input.
struct ForwardContext {
  const MicroBatch* batch = nullptr;
  bool training = true;
  /// Of (seed, step). A block adds its own index, and a mask goes on from sequence to sequence of the global batch: it
  /// is the same however many ranks and micro-batches share them, and recomputation repeats it.
  uint64_t dropout_key = 0;
  int64_t first_sequence = 0;             ///< of the micro-batch, in the step's global batch
  const TokenLoss* token_loss = nullptr;  ///< in place of cross entropy
  std::optional<int64_t> logits_of = {};  ///< instead of any loss: logits at this position of every sequence
};

class Block {
 public:
  virtual ~Block() = default;
  /// embedding: x undefined -> [B, T, dim]; transformer: [B, T, dim] -> [B, T, dim];
  /// head: [B, T, dim] -> scalar fp32, the cross entropy summed over all non-ignored targets of the micro-batch, or
  /// with logits_of [B, vocab] fp32.
  virtual torch::Tensor forward(const torch::Tensor& x, const ForwardContext& context) = 0;
};

class Model {
 public:
  explicit Model(ModelSpec spec) : spec(std::move(spec)), slots(this->spec.parameters().size()) {}
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelSpec spec;
  /// One per spec.parameters(), in that order; undefined until a strategy fills them.
  std::vector<torch::Tensor> slots;
  /// One per spec.blocks, in that order. Blocks hold references into `slots`.
  std::vector<std::unique_ptr<Block>> blocks;
};

}  // namespace runner
