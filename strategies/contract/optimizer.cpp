#include "strategies/contract/optimizer.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/glob.hpp"
#include "strategies/contract/adam.hpp"

namespace runner {

GroupSettings group_of(const ParameterSpec& parameter, const OptimizerConfig& config) {
  GroupSettings settings;
  settings.lr = config.lr;
  settings.weight_decay = parameter.shape.size() > 1 || config.decay_norms_and_biases ? config.weight_decay : 0.0;
  for (const auto& group : config.groups)
    if (glob_matches(group.pattern, parameter.name)) {
      settings.lr = group.lr.value_or(config.lr);
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

size_t Optimizer::add_swapped(int64_t begin, int64_t count, const GroupSettings& group, const torch::Tensor& parameter,
                              const torch::Tensor& copy) {
  RUNNER_CHECK(swap_ && config_.spec().has_host_kernel);
  RUNNER_CHECK(slots_.empty() || slots_.back().begin + slots_.back().count <= begin);
  slots_.push_back({parameter, copy, {}, group, begin, count});
  return slots_.size() - 1;
}

void Optimizer::allocate(Slot& slot) {
  if (!slot.state.empty()) return;
  for (int i = 0; i < config_.states(); ++i) slot.state.push_back(torch::zeros_like(slot.parameter));
}

std::vector<torch::Tensor> Optimizer::state(size_t index) {
  if (swap_) return {};
  allocate(slots_.at(index));
  return slots_[index].state;
}

void Optimizer::step(const std::vector<torch::Tensor>& gradients, double lr_factor, double gradient_divisor) {
  RUNNER_CHECK(gradients.size() == slots_.size(), "{} gradients for {} parameters", gradients.size(), slots_.size());
  Update update = begin_step(lr_factor, gradient_divisor);
  if (swap_)
    step_swapped(update, gradients);
  else
    step_part(update, 0, gradients);
}

Optimizer::Update Optimizer::begin_step(double lr_factor, double gradient_divisor) {
  torch::NoGradGuard no_grad;
  if (!swap_)
    for (auto& slot : slots_)
      if (slot.parameter.numel() > 0) allocate(slot);
  return {lr_factor, gradient_divisor, ++steps_};
}

void Optimizer::step_part(const Update& update, size_t first, const std::vector<torch::Tensor>& gradients) {
  RUNNER_CHECK(!swap_ && first + gradients.size() <= slots_.size(), "parameters [{}, +{}) of {}", first,
               gradients.size(), slots_.size());
  torch::NoGradGuard no_grad;
  Part part{first, gradients};
  for (const auto& [group, all] : groups_) {
    auto begin = std::lower_bound(all.begin(), all.end(), first),
         end = std::lower_bound(begin, all.end(), first + gradients.size());
    if (begin == end) continue;
    Members members(begin, end);
    const auto& parameter = slots_[members.front()].parameter;
    bool ours = config_.spec().has_host_kernel && parameter.is_cpu() && parameter.scalar_type() == torch::kFloat32;
    if (ours)
      step_on_host(update, group, members, part);
    else
      step_group(update, group, members, part);
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

AdamSettings Optimizer::settings_of(const Update& update, const GroupSettings& group) const {
  return {.lr = group.lr * update.lr_factor,
          .beta1 = config_.beta1,
          .beta2 = config_.beta2,
          .eps = config_.eps,
          .weight_decay = group.weight_decay,
          .decoupled = config_.spec().decays_apart_from_gradient,
          .gradient_divisor = update.gradient_divisor,
          .step = update.step};
}

namespace {

struct Piece {
  AdamSettings settings;
  AdamSpan span;
};

/// Updates all pieces, with equal numbers of elements on each thread.
void update_all(const std::vector<Piece>& pieces) {
  std::vector<int64_t> begins{0};  // first element of each piece in the concatenation of all pieces, and its end
  for (const auto& piece : pieces) begins.push_back(begins.back() + piece.span.count);
  constexpr int64_t grain = 32768;
  at::parallel_for(0, begins.back(), grain, [&](int64_t begin, int64_t end) {
    auto i = static_cast<size_t>(std::upper_bound(begins.begin(), begins.end(), begin) - begins.begin()) - 1;
    for (; i < pieces.size() && begins[i] < end; ++i) {
      int64_t from = std::max(begin, begins[i]), to = std::min(end, begins[i + 1]);
      adam_update(pieces[i].settings, pieces[i].span.cut(from - begins[i], to - from));
    }
  });
}

/// A span of `count` elements. Sets the gradient, and the parameter and the copy if they are defined.
AdamSpan span_of(const torch::Tensor& parameter, const torch::Tensor& copy, const torch::Tensor& gradient,
                 int64_t count) {
  RUNNER_CHECK(gradient.is_cpu() && gradient.is_contiguous() && gradient.scalar_type() != torch::kFloat64);
  AdamSpan span;
  if (parameter.defined()) span.parameter = parameter.data_ptr<float>();
  span.gradient = gradient.data_ptr();
  span.gradient_dtype = dtype_of(gradient);
  if (copy.defined()) {
    span.copy = copy.data_ptr();
    span.copy_dtype = dtype_of(copy);
  }
  span.count = count;
  return span;
}

}  // namespace

void Optimizer::step_on_host(const Update& update, const GroupSettings& group, Members members, const Part& part) {
  std::vector<Piece> pieces;
  for (size_t index : members) {
    const Slot& slot = slots_[index];
    if (slot.parameter.numel() == 0) continue;
    auto span = span_of(slot.parameter, slot.copy, part.gradient(index), slot.parameter.numel());
    span.exp_avg = slot.state[0].data_ptr<float>();
    span.exp_avg_sq = slot.state[1].data_ptr<float>();
    pieces.push_back({settings_of(update, group), span});
  }
  update_all(pieces);
}

void Optimizer::step_swapped(const Update& update, const std::vector<torch::Tensor>& gradients) {
  const OptimizerSwap& swap = *swap_;
  std::vector<size_t> in{swap.exp_avg, swap.exp_avg_sq};
  if (swap.parameter) in.push_back(*swap.parameter);
  auto out = in;
  if (swap.copy) out.push_back(*swap.copy);
  swap.file->stream(swap.buffers, in, out, [&](int64_t begin, int64_t count, std::span<std::byte* const> tile) {
    std::vector<Piece> pieces;
    for (size_t i = 0; i < slots_.size(); ++i) {
      const Slot& slot = slots_[i];
      int64_t from = std::max(begin, slot.begin), to = std::min(begin + count, slot.begin + slot.count);
      if (from >= to) continue;
      auto within = span_of(slot.parameter, slot.copy, gradients[i], slot.count).cut(from - slot.begin, to - from);
      auto floats = [&](size_t array) { return reinterpret_cast<float*>(tile[array]) + (from - begin); };
      within.exp_avg = floats(swap.exp_avg);
      within.exp_avg_sq = floats(swap.exp_avg_sq);
      if (!slot.parameter.defined()) within.parameter = floats(*swap.parameter);
      if (!slot.copy.defined() && swap.copy) {
        within.copy = tile[*swap.copy] + (from - begin) * bytes_of(swap.copy_dtype);
        within.copy_dtype = swap.copy_dtype;
      }
      pieces.push_back({settings_of(update, slot.group), within});
    }
    update_all(pieces);
  });
}

void Optimizer::step_group(const Update& update, const GroupSettings& group, Members members, const Part& part) {
  Batch batch;
  auto run = [&] {
    if (batch.elements > 0) step_batch(update, group, batch);
    batch = {};
  };
  for (size_t index : members) {
    const Slot& slot = slots_[index];
    int64_t numel = slot.parameter.numel(), piece = numel;
    if (numel == 0) continue;
    bool copied = part.gradient(index).scalar_type() != slot.parameter.scalar_type();
    if (copied && copied_elements_ > 0) piece = copied_elements_;
    for (int64_t begin = 0; begin < numel; begin += piece) {
      int64_t count = std::min(piece, numel - begin);
      if (copied && copied_elements_ > 0 && batch.elements + count > copied_elements_) run();
      auto cut = [&](const torch::Tensor& tensor) { return count == numel ? tensor : tensor.narrow(0, begin, count); };
      batch.parameters.push_back(cut(slot.parameter));
      batch.gradients.push_back(cut(part.gradient(index)).to(slot.parameter.scalar_type()));
      if (config_.states() > 0) batch.first.push_back(cut(slot.state[0]));
      if (config_.states() > 1) batch.second.push_back(cut(slot.state[1]));
      batch.elements += count;
    }
  }
  run();
  for (size_t index : members)
    if (slots_[index].copy.defined()) slots_[index].copy.copy_(slots_[index].parameter);
}

void Optimizer::step_batch(const Update& update, const GroupSettings& group, const Batch& batch) {
  double lr = group.lr * update.lr_factor;
  auto parameters = batch.parameters, grads = batch.gradients, first = batch.first, second = batch.second;
  auto device = parameters[0].device();
  std::optional<torch::Tensor> divisor;
  if (update.gradient_divisor != 1.0)
    divisor = torch::full({}, update.gradient_divisor, torch::dtype(torch::kFloat32).device(device));
  if (config_.kind == OptimizerConfig::Kind::sgd) {
    at::_fused_sgd_(parameters, grads, first, group.weight_decay, config_.momentum, lr, 0.0, config_.nesterov,
                    /*maximize=*/false, /*is_first_step=*/update.step == 1, divisor, {});
    return;
  }
  // The kernels need one step tensor for each parameter. They only read it, so all can be the same tensor.
  auto step = torch::full({}, static_cast<double>(update.step), torch::dtype(torch::kFloat32).device(device));
  std::vector<torch::Tensor> steps(parameters.size(), step);
  if (config_.kind == OptimizerConfig::Kind::adamw)
    at::_fused_adamw_(parameters, grads, first, second, {}, steps, lr, config_.beta1, config_.beta2, group.weight_decay,
                      config_.eps, /*amsgrad=*/false, /*maximize=*/false, divisor, {});
  else
    at::_fused_adam_(parameters, grads, first, second, {}, steps, lr, config_.beta1, config_.beta2, group.weight_decay,
                     config_.eps, /*amsgrad=*/false, /*maximize=*/false, divisor, {});
}

}  // namespace runner
