// The last block of decoders that predict a label or numbers of a text: the final norm and the outputs, of the last token.
#pragma once
#include "runner/models/final_norm.hpp"
#include "runner/models/pooling.hpp"
#include "runner/models/task_head.hpp"

namespace runner {

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
