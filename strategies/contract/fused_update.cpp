#include "strategies/contract/fused_update.hpp"

#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>

#include <optional>

namespace runner {

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
