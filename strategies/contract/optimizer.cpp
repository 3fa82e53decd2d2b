#include "strategies/contract/optimizer.hpp"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <fnmatch.h>

#include "runner/base/error.hpp"

namespace runner {

std::vector<std::string> OptimizerConfig::state_names() const {
  if (kind != Kind::sgd) return {"exp_avg", "exp_avg_sq"};
  return momentum != 0.0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{};
}

bool glob_matches(const std::string& pattern, const std::string& text) {
  return ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

GroupSettings group_of(const ParameterSpec& parameter, const OptimizerConfig& config) {
  GroupSettings settings;
  settings.weight_decay = parameter.shape.size() > 1 || config.decay_norms_and_biases ? config.weight_decay : 0.0;
  for (const auto& group : config.groups)
    if (glob_matches(group.pattern, parameter.name)) {
      settings.lr_scale = group.lr_scale.value_or(1.0);
      settings.weight_decay = group.weight_decay.value_or(settings.weight_decay);
      break;
    }
  return settings;
}

Optimizer::Optimizer(OptimizerConfig config) : config_(std::move(config)) {}

size_t Optimizer::add(const torch::Tensor& parameter, const GroupSettings& group) {
  slots_.push_back({parameter, {}});
  groups_[group].push_back(slots_.size() - 1);
  return slots_.size() - 1;
}

void Optimizer::allocate(Slot& slot) {
  if (!slot.state.empty()) return;
  for (int i = 0; i < config_.states(); ++i) slot.state.push_back(torch::zeros_like(slot.parameter));
}

std::vector<torch::Tensor> Optimizer::state(size_t index) {
  allocate(slots_.at(index));
  return slots_[index].state;
}

void Optimizer::step(const std::vector<torch::Tensor>& gradients, double lr, double gradient_divisor) {
  RUNNER_CHECK(gradients.size() == slots_.size(), "{} gradients for {} parameters", gradients.size(), slots_.size());
  torch::NoGradGuard no_grad;
  ++steps_;
  for (const auto& [group, members] : groups_)
    step_group(group, members, gradients, lr * group.lr_scale, gradient_divisor);
}

void Optimizer::step_group(const GroupSettings& group, const std::vector<size_t>& members,
                           const std::vector<torch::Tensor>& gradients, double lr, double gradient_divisor) {
  std::vector<torch::Tensor> parameters, grads, first, second;
  for (size_t index : members) {
    Slot& slot = slots_[index];
    if (slot.parameter.numel() == 0) continue;
    allocate(slot);
    parameters.push_back(slot.parameter);
    grads.push_back(gradients[index]);
    if (config_.states() > 0) first.push_back(slot.state[0]);
    if (config_.states() > 1) second.push_back(slot.state[1]);
  }
  if (parameters.empty()) return;
  auto device = parameters[0].device();
  std::optional<torch::Tensor> divisor;
  if (gradient_divisor != 1.0)
    divisor = torch::full({}, gradient_divisor, torch::dtype(torch::kFloat32).device(device));
  if (config_.kind == OptimizerConfig::Kind::sgd) {
    at::_fused_sgd_(parameters, grads, first, group.weight_decay, config_.momentum, lr, 0.0, config_.nesterov,
                    /*maximize=*/false, /*is_first_step=*/steps_ == 1, divisor, {});
    return;
  }
  // The kernels want one step tensor a parameter; one shared tensor serves, they only read it.
  auto step = torch::full({}, static_cast<double>(steps_), torch::dtype(torch::kFloat32).device(device));
  std::vector<torch::Tensor> steps(parameters.size(), step);
  if (config_.kind == OptimizerConfig::Kind::adamw)
    at::_fused_adamw_(parameters, grads, first, second, {}, steps, lr, config_.beta1, config_.beta2, group.weight_decay,
                      config_.eps, /*amsgrad=*/false, /*maximize=*/false, divisor, {});
  else
    at::_fused_adam_(parameters, grads, first, second, {}, steps, lr, config_.beta1, config_.beta2, group.weight_decay,
                     config_.eps, /*amsgrad=*/false, /*maximize=*/false, divisor, {});
}

}  // namespace runner
