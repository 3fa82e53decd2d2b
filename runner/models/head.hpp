// The last block of gpt and of decoders: final norm, vocabulary projection and loss, or the outputs for a label or numbers of a text.
// Logits do not leave this block in training.
#pragma once
#include "runner/config/recipe.hpp"
#include "runner/models/cross_entropy.hpp"
#include "runner/models/final_norm.hpp"
#include "runner/models/host_decoding.hpp"
#include "runner/models/layers.hpp"
#include "runner/models/pooling.hpp"
#include "runner/models/stream.hpp"
#include "runner/models/task_head.hpp"
#include "runner/models/token_loss.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

/// The changes that a head makes to logits before the loss.
struct LogitForm {
  double divisor = 1;  ///< logits are divided by it
  double softcap = 0;  ///< then they become cap * tanh(logit / cap); 0: no cap
};

/// Norm is the final norm of hidden states. A tied head uses the embedding's slot.
template <typename Norm>
class Head : public Block, public FinalNorm {
 public:
  Head(const Model& model, const Recipe::Model& recipe, Norm norm, const LogitForm& form = {})
      : norm_(std::move(norm)),
        weight_(model, recipe.tie_embeddings ? "embedding.tokens.weight" : "head.weight"),
        targets_(model.spec.batch_field(token_field::targets_name)),
        vocabulary_(model.spec.vocab_size),
        chunk_tokens_(model.spec.loss_chunk_tokens),
        form_(form) {}

  torch::Tensor forward(const torch::Tensor& input, const ForwardContext& context) override {
    ComputeScope compute(input);
    const Stream stream(input, context);
    const VocabularyPart part{.tokens = vocabulary_, .axis = context.tensor_axis};
    if (context.logits_of) {
      const auto logits = last_logits(last_states(input.to(compute.dtype), stream, *context.logits_of));
      return part.join(logits).to(torch::kFloat32);
    }
    const auto hidden = stream.enter(hidden_states(input.reshape({-1, input.size(-1)}).to(compute.dtype)));
    auto targets = context.batch->fields[targets_].reshape(-1);
    if (context.token_loss)
      return chunked_token_loss(hidden, weight_.get(), targets, chunk_tokens_, *context.token_loss,
                                {.part = part, .softcap = form_.softcap});
    return chunked_cross_entropy(hidden, weight_.get(), targets, chunk_tokens_,
                                 {.part = part, .softcap = form_.softcap});
  }

  torch::Tensor normed(const torch::Tensor& hidden) const override { return norm_(hidden); }

 private:
  /// Normed, and divided instead of the logits, which are wider.
  torch::Tensor hidden_states(const torch::Tensor& x) {
    auto normed = norm_(x);
    return form_.divisor == 1 ? normed : normed.mul_(1 / form_.divisor);
  }
  /// The hidden states of the token at `position` of each sequence.
  torch::Tensor last_states(const torch::Tensor& input, const Stream& stream, int64_t position) {
    if (input.dim() == 3) return hidden_states(input.select(1, position).contiguous());
    return stream.enter(hidden_states(input))
        .view({stream.batch(), stream.seq_len(), -1})
        .select(1, position)
        .contiguous();
  }
  torch::Tensor last_logits(const torch::Tensor& hidden) {
    const auto weight = weight_.as(hidden.scalar_type());
    const auto logits = decodes_on_host(hidden) && few_rows(hidden, weight)
                            ? few_rows_product(hidden, weight, {}, torch::kFloat32)
                            : at::linear(hidden, weight);
    return soft_capped(logits, form_.softcap);
  }

  Norm norm_;
  Parameter weight_;
  size_t targets_;
  int64_t vocabulary_;
  int64_t chunk_tokens_;
  LogitForm form_;
};

/// The head of transformers' ...ForSequenceClassification of decoders. Norm is the final norm of hidden states.
template <typename Norm>
class TextLabelHead : public TaskHead, public FinalNorm {
 public:
  TextLabelHead(const Model& model, Norm norm) : TaskHead(model), norm_(std::move(norm)), positions_(model.spec) {}

  torch::Tensor normed(const torch::Tensor& hidden) const override { return norm_(hidden); }

 protected:
  torch::Tensor features(const torch::Tensor& x, const ForwardContext& context) override {
    return norm_(last_states(x, positions_.of(*context.batch)));
  }

 private:
  Norm norm_;
  PositionsField positions_;
};

}  // namespace runner
