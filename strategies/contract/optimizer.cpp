#include "strategies/contract/optimizer.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <fnmatch.h>

#include <algorithm>

#include "runner/base/error.hpp"
#include "strategies/contract/adam.hpp"

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

size_t Optimizer::add(const torch::Tensor& parameter, const GroupSettings& group, const torch::Tensor& copy) {
  slots_.push_back({parameter, copy, {}});
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
  for (const auto& [group, members] : groups_) {
    const auto& parameter = slots_[members.front()].parameter;
    bool ours =
        config_.kind != OptimizerConfig::Kind::sgd && parameter.is_cpu() && parameter.scalar_type() == torch::kFloat32;
    if (ours)
      step_on_host(group, members, gradients, lr * group.lr_scale, gradient_divisor);
    else
      step_group(group, members, gradients, lr * group.lr_scale, gradient_divisor);
  }
}

namespace {
DType dtype_of(const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kFloat64:
      return DType::float64;
    case torch::kBFloat16:
      return DType::bfloat16;
    case torch::kFloat16:
      return DType::float16;
    default:
      return DType::float32;
  }
}
}  // namespace

void Optimizer::step_on_host(const GroupSettings& group, const std::vector<size_t>& members,
                             const std::vector<torch::Tensor>& gradients, double lr, double gradient_divisor) {
  AdamSettings settings{lr,
                        config_.beta1,
                        config_.beta2,
                        config_.eps,
                        group.weight_decay,
                        config_.kind == OptimizerConfig::Kind::adamw,
                        gradient_divisor,
                        steps_};
  std::vector<AdamSpan> spans;
  std::vector<int64_t> begins{0};  // of each span among all elements, and their end
  for (size_t index : members) {
    Slot& slot = slots_[index];
    if (slot.parameter.numel() == 0) continue;
    allocate(slot);
    const auto& gradient = gradients[index];
    RUNNER_CHECK(gradient.is_cpu() && gradient.is_contiguous() && gradient.scalar_type() != torch::kFloat64);
    AdamSpan span;
    span.parameter = slot.parameter.data_ptr<float>();
    span.exp_avg = slot.state[0].data_ptr<float>();
    span.exp_avg_sq = slot.state[1].data_ptr<float>();
    span.gradient = gradient.data_ptr();
    span.gradient_dtype = dtype_of(gradient);
    if (slot.copy.defined()) {
      span.copy = slot.copy.data_ptr();
      span.copy_dtype = dtype_of(slot.copy);
    }
    span.count = slot.parameter.numel();
    spans.push_back(span);
    begins.push_back(begins.back() + span.count);
  }
  constexpr int64_t grain = 32768;
  at::parallel_for(0, begins.back(), grain, [&](int64_t begin, int64_t end) {
    auto i = static_cast<size_t>(std::upper_bound(begins.begin(), begins.end(), begin) - begins.begin()) - 1;
    for (; i < spans.size() && begins[i] < end; ++i) {
      int64_t from = std::max(begin, begins[i]), to = std::min(end, begins[i + 1]);
      adam_update(settings, spans[i].cut(from - begins[i], to - from));
    }
  });
}

void Optimizer::step_group(const GroupSettings& group, const std::vector<size_t>& members,
                           const std::vector<torch::Tensor>& gradients, double lr, double gradient_divisor) {
  Batch batch;
  auto run = [&] {
    if (batch.elements > 0) step_batch(group, batch, lr, gradient_divisor);
    batch = {};
  };
  for (size_t index : members) {
    Slot& slot = slots_[index];
    int64_t numel = slot.parameter.numel(), piece = numel;
    if (numel == 0) continue;
    allocate(slot);
    bool copied = gradients[index].scalar_type() != slot.parameter.scalar_type();
    if (copied && copied_elements_ > 0) piece = copied_elements_;
    for (int64_t begin = 0; begin < numel; begin += piece) {
      int64_t count = std::min(piece, numel - begin);
      if (copied && copied_elements_ > 0 && batch.elements + count > copied_elements_) run();
      auto cut = [&](const torch::Tensor& tensor) { return count == numel ? tensor : tensor.narrow(0, begin, count); };
      batch.parameters.push_back(cut(slot.parameter));
      batch.gradients.push_back(cut(gradients[index]).to(slot.parameter.scalar_type()));
      if (config_.states() > 0) batch.first.push_back(cut(slot.state[0]));
      if (config_.states() > 1) batch.second.push_back(cut(slot.state[1]));
      batch.elements += count;
    }
  }
  run();
  for (size_t index : members)
    if (slots_[index].copy.defined()) slots_[index].copy.copy_(slots_[index].parameter);
}

void Optimizer::step_batch(const GroupSettings& group, const Batch& batch, double lr, double gradient_divisor) {
  auto parameters = batch.parameters, grads = batch.gradients, first = batch.first, second = batch.second;
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
