#include "runner/models/module.hpp"

#include <fmt/format.h>

#include "runner/config/model_families.hpp"
#include "runner/models/layers.hpp"
#include "runner/models/row_input.hpp"
#include "runner/models/task_head.hpp"

namespace runner::mlp {

using torch::Tensor;

namespace {

class Layer : public Block {
 public:
  Layer(const Model& model, const Recipe::Model& recipe, size_t index)
      : linear_(model, fmt::format("layers.{}", index)),
        activation_(activation_named(activation_of(recipe))),
        dropout_(recipe.dropout, index + 1) {}

  Tensor forward(const Tensor& input, const ForwardContext& context) override {
    ComputeScope compute(input);
    auto x = linear_(input.to(compute.dtype), context);
    // ReLU saves its result, which dropout must not change; before ReLU it has the same effect.
    if (activation_ == Activation::relu) return activated(dropout_(x, context, DropoutSite::mlp_out), activation_);
    return dropout_(activated(x, activation_), context, DropoutSite::mlp_out);
  }

 private:
  Linear linear_;
  Activation activation_;
  Dropout dropout_;
};

}  // namespace

void add_blocks(Model& model, const Recipe::Model& recipe) {
  model.blocks.push_back(std::make_unique<RowInput>(model));
  for (size_t i = 0; i < recipe.hidden_sizes.size(); ++i)
    model.blocks.push_back(std::make_unique<Layer>(model, recipe, i));
  model.blocks.push_back(std::make_unique<TaskHead>(model));
}

}  // namespace runner::mlp
