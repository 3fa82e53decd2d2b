// The last block of every family: final norm, vocabulary projection and loss. Logits do not leave this block in
// training.
#pragma once
#include "runner/config/recipe.hpp"
#include "runner/models/cross_entropy.hpp"
#include "runner/models/layers.hpp"
#include "runner/models/token_loss.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

/// Norm is LayerNorm or RmsNorm. A tied head uses the embedding's slot.
template <typename Norm>
class Head : public Block {
 public:
  Head(const Model& model, const Recipe::Model& recipe)
      : norm_(model, "head.norm", recipe.norm_eps),
        weight_(model, recipe.tie_embeddings ? "embedding.tokens.weight" : "head.weight"),
        targets_(model.spec.batch_field(token_field::targets_name)),
        chunk_tokens_(model.spec.loss_chunk_tokens) {}

  torch::Tensor forward(const torch::Tensor& input, const ForwardContext& context) override {
    ComputeScope compute(input);
    if (context.logits_of) {
      auto last = norm_(input.select(1, *context.logits_of).contiguous().to(compute.dtype));
      return at::linear(last, weight_.as(compute.dtype)).to(torch::kFloat32);
    }
    auto hidden = norm_(input.reshape({-1, input.size(-1)}).to(compute.dtype));
    auto targets = context.batch->fields[targets_].reshape(-1);
    if (context.token_loss)
      return chunked_token_loss(hidden, weight_.get(), targets, chunk_tokens_, *context.token_loss);
    return chunked_cross_entropy(hidden, weight_.get(), targets, chunk_tokens_);
  }

 private:
  Norm norm_;
  Parameter weight_;
  size_t targets_;
  int64_t chunk_tokens_;
};

}  // namespace runner
