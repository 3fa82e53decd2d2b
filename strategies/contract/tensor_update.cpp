#include "strategies/contract/tensor_update.hpp"

#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <cmath>
#include <optional>

#include "runner/base/error.hpp"
#include "strategies/contract/quantized_adam.hpp"

namespace runner {

namespace {

/// A tensor in the dtype of the computation. store() writes it back if it is a copy.
struct Wide {
  torch::Tensor original, values;
  Wide(const torch::Tensor& tensor, torch::ScalarType type) : original(tensor), values(tensor.to(type)) {}
  void store() const {
    if (!values.is_same(original)) original.copy_(values);
  }
};

torch::Tensor wide_gradient(const TensorUpdate& update, torch::ScalarType type) {
  auto gradient = update.gradient.to(type, /*non_blocking=*/false, /*copy=*/true);
  return update.settings.gradient_divisor == 1.0 ? gradient : gradient.div_(update.settings.gradient_divisor);
}

double share_kept(const UpdateSettings& settings) {
  return settings.decoupled ? 1 - settings.lr * settings.weight_decay : 1.0;
}

void adam(const TensorUpdate& update, torch::ScalarType type) {
  const auto& s = update.settings;
  Wide parameter(update.parameter, type), average(update.states[0], type), squares(update.states[1], type);
  auto gradient = wide_gradient(update, type);
  if (s.moments == Moments::first_given) average.values.copy_(gradient);
  if (s.moments == Moments::from_gradient) {
    if (!s.decoupled && s.weight_decay != 0) gradient.add_(parameter.values, s.weight_decay);
    average.values.lerp_(gradient, 1 - s.beta1);
    squares.values.mul_(s.beta2).addcmul_(gradient, gradient, 1 - s.beta2);
    parameter.values.mul_(share_kept(s));
  }
  const auto step = static_cast<double>(s.step);
  torch::sqrt_out(gradient, squares.values);
  gradient.div_(std::sqrt(1 - std::pow(s.beta2, step))).add_(s.eps);
  parameter.values.addcdiv_(average.values, gradient, -s.lr / (1 - std::pow(s.beta1, step)));
  for (const auto* tensor : {&parameter, &average, &squares}) tensor->store();
}

void lion(const TensorUpdate& update, torch::ScalarType type) {
  const auto& s = update.settings;
  auto gradient = wide_gradient(update, type);
  Wide parameter(update.parameter, type), average(update.states[0], type);
  parameter.values.mul_(share_kept(s)).sub_((average.values * s.beta1).add_(gradient, 1 - s.beta1).sign_(), s.lr);
  average.values.mul_(s.beta2).add_(gradient, 1 - s.beta2);
  parameter.store();
  average.store();
}

void schedule_free(const TensorUpdate& update, torch::ScalarType type) {
  const auto& s = update.settings;
  auto direction = wide_gradient(update, type);
  Wide y(update.parameter, type), z(update.states[0], type), squares(update.states[1], type);
  squares.values.mul_(s.beta2).addcmul_(direction, direction, 1 - s.beta2);
  const double correction = 1 - std::pow(s.beta2, static_cast<double>(s.step));
  direction.div_(squares.values.div(correction).sqrt_().add_(s.eps));
  if (s.weight_decay != 0) direction.add_(y.values, s.weight_decay);
  y.values.lerp_(z.values, s.average_share).add_(direction, s.lr * (s.beta1 * (1 - s.average_share) - 1));
  z.values.sub_(direction, s.lr);
  y.store();
  z.store();
  squares.store();
}

torch::Tensor on_device(const QuantizedMap& map, torch::Device device) {
  return torch::from_blob(const_cast<float*>(map.data()), {std::ssize(map)}, torch::kFloat32).to(device);
}

/// Values in blocks: [blocks, state_block], with zeros after the last one.
struct Blocks {
  torch::Tensor codes, scales, map;
  int64_t count;

  Blocks(const torch::Tensor& of_codes, const torch::Tensor& of_scales, const QuantizedMap& of_map)
      : codes(of_codes), scales(of_scales), map(on_device(of_map, of_codes.device())), count(of_codes.numel()) {}
  torch::Tensor read() const { return map.index_select(0, codes.to(torch::kInt32)).mul_(spread()); }
  void write(const torch::Tensor& values) {
    auto padded = torch::zeros({scales.numel() * state_block}, values.options());
    padded.narrow(0, 0, count).copy_(values);
    const auto most = padded.abs_().view({-1, state_block}).amax(1);
    scales.copy_(torch::where(most == 0, torch::ones_like(most), most));
    const auto bounds = (map.narrow(0, 0, 255) + map.narrow(0, 1, 255)).div_(2);
    codes.copy_(torch::bucketize(values / spread(), bounds, /*out_int32=*/true));
  }
  torch::Tensor spread() const { return scales.repeat_interleave(state_block).narrow(0, 0, count); }
};

void quantized(const TensorUpdate& update) {
  const auto& s = update.settings;
  const auto gradient = wide_gradient(update, torch::kFloat32);
  Blocks first(update.states[0], update.states[2], signed_map()),
      second(update.states[1], update.states[3], unsigned_map());
  const auto averages = first.read().mul_(s.beta1).add_(gradient, 1 - s.beta1);
  const auto squares = second.read().mul_(s.beta2).addcmul_(gradient, gradient, 1 - s.beta2);
  const auto step = static_cast<double>(s.step);
  Wide parameter(update.parameter, torch::kFloat32);
  const auto roots = squares.sqrt().div_(std::sqrt(1 - std::pow(s.beta2, step))).add_(s.eps);
  parameter.values.mul_(share_kept(s)).addcdiv_(averages, roots, -s.lr / (1 - std::pow(s.beta1, step)));
  parameter.store();
  first.write(averages);
  second.write(squares);
}

}  // namespace

void tensor_update(const TensorUpdate& update) {
  const auto type = wide_dtype(update.parameter);
  if (update.states.size() == 4) return quantized(update);
  switch (update.settings.rule) {
    case UpdateRule::schedule_free:
      return schedule_free(update, type);
    case UpdateRule::adam:
      return adam(update, type);
    case UpdateRule::lion:
      return lion(update, type);
    default:
      RUNNER_CHECK(false, "LibTorch has a kernel for this rule");
  }
}

namespace {

/// The divisor of gradients for the kernels. They take it in float32, which would round the divisor of float64 gradients: those are divided
/// here.
std::optional<torch::Tensor> divisor_for_kernel(double divisor, std::vector<torch::Tensor>& gradients) {
  if (divisor == 1.0) return std::nullopt;
  if (gradients.front().scalar_type() == torch::kFloat64) {
    at::_foreach_div_(gradients, divisor);
    return std::nullopt;
  }
  return torch::full({}, divisor, torch::dtype(torch::kFloat32).device(gradients.front().device()));
}

}  // namespace

void fused_update(const OptimizerConfig& config, const UpdateSettings& settings, FusedTensors tensors) {
  auto& [parameters, gradients, first, second] = tensors;
  const auto& s = settings;
  const auto divisor = divisor_for_kernel(s.gradient_divisor, gradients);
  if (config.kind == OptimizerKind::sgd) {
    at::_fused_sgd_(parameters, gradients, first, s.weight_decay, config.momentum, s.lr, /*dampening=*/0.0,
                    config.nesterov, /*maximize=*/false, /*is_first_step=*/s.step == 1, divisor, {});
    return;
  }
  // The kernels need one step tensor for each parameter. They only read it, so all can be the same tensor.
  const auto step =
      torch::full({}, static_cast<double>(s.step), torch::dtype(torch::kFloat32).device(parameters.front().device()));
  const std::vector<torch::Tensor> steps(parameters.size(), step);
  if (s.decoupled)
    at::_fused_adamw_(parameters, gradients, first, second, {}, steps, s.lr, s.beta1, s.beta2, s.weight_decay, s.eps,
                      /*amsgrad=*/false, /*maximize=*/false, divisor, {});
  else
    at::_fused_adam_(parameters, gradients, first, second, {}, steps, s.lr, s.beta1, s.beta2, s.weight_decay, s.eps,
                     /*amsgrad=*/false, /*maximize=*/false, divisor, {});
}

bool fused_kernel_stores(OptimizerKind kind, const torch::Tensor& parameter) {
  return kind != OptimizerKind::sgd || parameter.is_cuda() || parameter.element_size() >= 4;
}

void widened_sgd(const OptimizerConfig& config, const TensorUpdate& update) {
  const auto wide = [](const torch::Tensor& tensor) {
    return tensor.to(torch::kFloat32, /*non_blocking=*/false, /*copy=*/true);
  };
  FusedTensors copies{.parameters = {wide(update.parameter)}, .gradients = {wide(update.gradient)}};
  for (const auto& state : update.states) copies.first.push_back(wide(state));
  fused_update(config, update.settings, copies);
  update.parameter.copy_(copies.parameters[0]);
  for (size_t k = 0; k < update.states.size(); ++k) update.states[k].copy_(copies.first[k]);
}

}  // namespace runner
