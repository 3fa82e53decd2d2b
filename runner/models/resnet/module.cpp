#include "runner/models/family_modules.hpp"

#include <fmt/format.h>

#include "runner/config/model_families.hpp"
#include "runner/models/batch_norm.hpp"
#include "runner/models/resnet/resnet.hpp"
#include "runner/models/row_input.hpp"
#include "runner/models/task_head.hpp"
#include "strategies/collective/counting_allocator.hpp"

namespace runner::resnet {

using torch::Tensor;

namespace {

constexpr double norm_eps = 1e-5;

/// A convolution without bias. Its library's memory is counted apart.
struct Convolution : torch::autograd::Function<Convolution> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& weight,
                        int64_t stride, int64_t padding) {
    context->save_for_backward({x, weight});
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    const LibraryScope library;
    return at::conv2d(x, weight, {}, stride, padding);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const int64_t stride = context->saved_data["stride"].toInt(), padding = context->saved_data["padding"].toInt();
    const LibraryScope library;
    auto [of_x, of_weight, of_bias] = at::convolution_backward(
        gradients[0], saved[0], saved[1], at::OptionalIntArrayRef(), {stride, stride}, {padding, padding}, {1, 1},
        /*transposed=*/false, {0, 0}, /*groups=*/1,
        {context->needs_input_grad(0), context->needs_input_grad(1), false});
    return {of_x, of_weight, Tensor(), Tensor()};
  }
};

/// A convolution and its BatchNorm.
class NormedConv {
 public:
  NormedConv(Model& model, const Recipe::Model& recipe, const Conv& conv)
      : weight_(model, conv.name + ".conv.weight"),
        norm_(model, conv.name + ".norm", norm_eps, recipe.sync_batchnorm),
        stride_(conv.stride),
        padding_(conv.padding()) {}

  Tensor operator()(const Tensor& x, const ForwardContext& context) const {
    return norm_(Convolution::apply(x, weight_.as(x.scalar_type()), stride_, padding_), context);
  }

 private:
  Parameter weight_;
  BatchNorm norm_;
  int64_t stride_, padding_;
};

class Stem : public Block {
 public:
  Stem(Model& model, const Recipe::Model& recipe)
      : conv_(model, recipe, stem_of(recipe)), activation_(activation_named(activation_of(recipe))) {}

  Tensor forward(const Tensor& input, const ForwardContext& context) override {
    ComputeScope compute(input);
    const auto x = activated(conv_(input.to(compute.dtype), context), activation_);
    return at::max_pool2d(x, 3, 2, 1);
  }

 private:
  NormedConv conv_;
  Activation activation_;
};

class Residual : public Block {
 public:
  Residual(Model& model, const Recipe::Model& recipe, const ResidualLayer& layer)
      : activation_(activation_named(activation_of(recipe))) {
    for (const auto& conv : layer.shortcut) shortcut_.emplace_back(model, recipe, conv);
    for (const auto& conv : layer.branch) branch_.emplace_back(model, recipe, conv);
  }

  Tensor forward(const Tensor& input, const ForwardContext& context) override {
    ComputeScope compute(input);
    const auto x = input.to(compute.dtype);
    const auto residual = shortcut_.empty() ? x : shortcut_.front()(x, context);
    auto y = x;
    for (size_t i = 0; i < branch_.size(); ++i) {
      y = branch_[i](y, context);
      if (i + 1 < branch_.size()) y = activated(y, activation_);
    }
    return activated(y + residual, activation_);
  }

 private:
  std::vector<NormedConv> shortcut_, branch_;
  Activation activation_;
};

/// The mean over the places of the image.
class ResnetHead : public TaskHead {
 public:
  using TaskHead::TaskHead;

 protected:
  Tensor features(const Tensor& x, const ForwardContext&) override { return x.mean(at::IntArrayRef{2, 3}); }
};

}  // namespace

void add_blocks(Model& model, const Recipe::Model& recipe) {
  model.blocks.push_back(std::make_unique<RowInput>(model));
  model.blocks.push_back(std::make_unique<Stem>(model, recipe));
  for (const auto& layer : layers_of(recipe)) model.blocks.push_back(std::make_unique<Residual>(model, recipe, layer));
  model.blocks.push_back(std::make_unique<ResnetHead>(model));
}

}  // namespace runner::resnet
