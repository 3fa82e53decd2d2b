#include "runner/models/batch_norm.hpp"
#include "strategies/contract/profiled.hpp"

namespace runner {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

/// Sums of [C] over batch and space.
Tensor sum_of(const Tensor& x) { return x.sum(at::IntArrayRef{0, 2, 3}); }
Tensor by_channel(const Tensor& c) { return c.view({1, -1, 1, 1}); }

/// (x - mean) * factor with the statistics of all ranks; backward adds the sums of all ranks, too. A micro-batch without samples
/// takes part in the sums, and its gradient is 0.
class SyncedNorm : public torch::autograd::Function<SyncedNorm> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& mean, const Tensor& factor,
                        double count, bool padding, const Model* model) {
    const auto normed = (x - by_channel(mean)) * by_channel(factor);
    context->save_for_backward({normed, factor});
    context->saved_data["count"] = count;
    context->saved_data["padding"] = padding;
    context->saved_data["model"] = reinterpret_cast<int64_t>(model);
    return normed;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
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

}  // namespace

BatchNorm::BatchNorm(Model& model, const std::string& name, double eps, bool sync)
    : weight_(model, name + ".weight"),
      bias_(model, name + ".bias"),
      model_(model),
      mean_(model.spec.buffer(name + ".running_mean")),
      variance_(model.spec.buffer(name + ".running_var")),
      eps_(eps),
      sync_(sync) {}

Tensor BatchNorm::operator()(const Tensor& x, const ForwardContext& context) const {
  const auto weight = weight_.get(), bias = bias_.get();
  if (!context.training) {
    // The kernels want one dtype for weights and running statistics, which are fp32.
    const auto dtype = x.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
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
  const auto normed = SyncedNorm::apply(wide, mean, (variance + eps_).rsqrt(), count, context.batch->padding, &model_);
  return (normed * by_channel(weight) + by_channel(bias)).to(x.scalar_type());
}

}  // namespace runner
