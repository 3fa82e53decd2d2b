#include "runner/models/mlp/module.hpp"

#include <fmt/format.h>

#include "runner/config/model_families.hpp"
#include "runner/models/layers.hpp"
#include "runner/models/task_head.hpp"

namespace runner::mlp {

using torch::Tensor;

namespace {

/// The features of the batch in the compute dtype.
class Input : public Block {
 public:
  explicit Input(const Model& model)
      : field_(model.spec.batch_field(row_field::features_name)),
        reference_(model, model.spec.parameters().front()->name) {}

  Tensor forward(const Tensor&, const ForwardContext& context) override {
    ComputeScope compute(reference_.get());
    return context.batch->fields[field_].to(compute.dtype);
  }

 private:
  size_t field_;
  Parameter reference_;
};

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
  model.blocks.push_back(std::make_unique<Input>(model));
  for (size_t i = 0; i < recipe.hidden_sizes.size(); ++i)
    model.blocks.push_back(std::make_unique<Layer>(model, recipe, i));
  model.blocks.push_back(std::make_unique<TaskHead>(model));
}

}  // namespace runner::mlp
