// The first block of models whose rows are not tokens: the input field in the compute dtype. It has no parameters.
#pragma once
#include "runner/models/layers.hpp"
#include "strategies/engine/row_batch.hpp"

namespace runner {

class RowInput : public Block {
 public:
  explicit RowInput(const Model& model) : reference_(model, model.spec.parameters().front()->name) {}

  torch::Tensor forward(const torch::Tensor&, const ForwardContext& context) override {
    ComputeScope compute(reference_.get());
    return context.batch->fields[row_field::input].to(compute.dtype);
  }

 private:
  Parameter reference_;
};

}  // namespace runner
