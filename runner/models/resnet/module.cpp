#include "runner/models/module.hpp"

#include <fmt/format.h>

#include "runner/config/model_families.hpp"
#include "runner/models/layers.hpp"
#include "runner/models/resnet/resnet.hpp"
#include "runner/models/row_input.hpp"
#include "runner/models/task_head.hpp"
#include "strategies/collective/counting_allocator.hpp"
#include "strategies/contract/profiled.hpp"

namespace runner::resnet {

using torch::Tensor;

namespace {

constexpr double norm_eps = 1e-5;

/// Sums of [C] over batch and space.
Tensor sum_of(const Tensor& x) { return x.sum(at::IntArrayRef{0, 2, 3}); }
Tensor by_channel(const Tensor& c) { return c.view({1, -1, 1, 1}); }

/// (x - mean) * factor with the statistics of all ranks; backward adds the sums of all ranks, too. A micro-batch without samples
/// takes part in the sums, and its gradient is 0.
class SyncedNorm : public torch::autograd::Function<SyncedNorm> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& mean,
                        const Tensor& factor, double count, bool padding, const Model* model) {
    const auto normed = (x - by_channel(mean)) * by_channel(factor);
    context->save_for_backward({normed, factor});
    context->saved_data["count"] = count;
    context->saved_data["padding"] = padding;
    context->saved_data["model"] = reinterpret_cast<int64_t>(model);
    return normed;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &normed = saved[0], &factor = saved[1], &gradient = gradients[0];
    auto sums = at::stack({sum_of(gradient), sum_of(gradient * normed)});
    reinterpret_cast<const Model*>(context->saved_data["model"].toInt())->sum_over_ranks(sums);
    sums.div_(context->saved_data["count"].toDouble());
    const auto result = context->saved_data["padding"].toBool()
                            ? at::zeros_like(gradient)
                            : (gradient - by_channel(sums[0]) - normed * by_channel(sums[1])) * by_channel(factor);
    return {result, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

/// BatchNorm (Ioffe and Szegedy 2015, arXiv:1502.03167) over the channels of images.
///
/// x [B, C, H, W]. Training uses the mean and the variance of the rank's micro-batch, or with `sync` of all ranks' rows of this
/// micro-batch, and hands them to Model::statistics; validation uses the running statistics NAME.running_mean and
/// NAME.running_var. A micro-batch without samples is normed, too, and does not count.
class BatchNorm {
 public:
  BatchNorm(Model& model, const std::string& name, double eps, bool sync)
      : weight_(model, name + ".weight"),
        bias_(model, name + ".bias"),
        model_(model),
        mean_(model.spec.buffer(name + ".running_mean")),
        variance_(model.spec.buffer(name + ".running_var")),
        eps_(eps),
        sync_(sync) {}

  Tensor operator()(const Tensor& x, const ForwardContext& context) const {
    const auto weight = weight_.get(), bias = bias_.get();
    if (!context.training) {
      // The kernels want one dtype for weights and running statistics, which are fp32.
      const auto dtype = wide_dtype(x);
      return std::get<0>(at::native_batch_norm(x, weight.to(dtype), bias.to(dtype), model_.buffers[mean_].to(dtype),
                                               model_.buffers[variance_].to(dtype), /*training=*/false, 0, eps_));
    }
    const bool counts = !context.batch->padding && !context.recomputes;
    const auto here = static_cast<double>(x.numel() / x.size(1));
    const auto note = [&](const Tensor& mean, const Tensor& variance, double count) {
      if (!counts) return;
      // The running variance is that of a sample, as in PyTorch.
      model_.statistics.add(mean_, mean.detach());
      model_.statistics.add(variance_, variance.detach() * (count / std::max(1.0, count - 1)));
    };
    if (!sync_) {
      const auto [y, mean, factor] = at::native_batch_norm(x, weight, bias, {}, {}, /*training=*/true, 0, eps_);
      note(mean, factor.detach().to(torch::kFloat32).pow(-2) - eps_, here);
      return y;
    }
    const auto wide = x.to(torch::promoteTypes(x.scalar_type(), torch::kFloat32));
    // The variance is a difference of sums. Deviations from the running mean, which all ranks have, keep its digits.
    const Tensor& shift = model_.buffers[mean_];
    Tensor sums;
    {
      torch::NoGradGuard no_grad;
      const double rows = context.batch->padding ? 0 : here;
      const auto deviation = wide - by_channel(shift);
      sums = at::cat({sum_of(deviation), sum_of(deviation.square()), at::full({1}, rows, wide.options())});
      if (context.batch->padding) sums.zero_();
      model_.sum_over_ranks(sums);
    }
    const int64_t channels = x.size(1);
    const double count = is_profiled(x) ? here : std::max(1.0, sums[2 * channels].item<double>());
    const auto shifted_mean = sums.narrow(0, 0, channels) / count, mean = shifted_mean + shift;
    const auto variance = (sums.narrow(0, channels, channels) / count - shifted_mean.square()).clamp_min(0);
    note(mean, variance, count);
    const auto normed =
        SyncedNorm::apply(wide, mean, (variance + eps_).rsqrt(), count, context.batch->padding, &model_);
    return (normed * by_channel(weight) + by_channel(bias)).to(x.scalar_type());
  }

 private:
  Parameter weight_, bias_;
  Model& model_;
  size_t mean_, variance_;  ///< indices of ModelSpec::buffers
  double eps_;
  bool sync_;
};

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
