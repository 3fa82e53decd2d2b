#include "strategies/xla/model_pass.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runner/base/error.hpp"
#include "strategies/xla/sharing.hpp"

namespace runner::xla {

using pjrt::Value;

ModelPass::ModelPass(Trace& trace, Model& model, const Job& job, const ParallelPlan& plan, const Arrays& arrays,
                     const std::vector<Value>& parameters)
    : trace_(trace),
      model_(model),
      job_(job),
      plan_(plan),
      arrays_(arrays),
      parameters_(parameters),
      units_(plan.units.size()),
      first_use_(plan.units.size(), model.blocks.size()),
      gathered_(plan.units.size()),
      gathered_again_(plan.units.size()),
      graphs_(model.blocks.size()),
      gradients_(parameters.size()) {
  for (const auto& parameter : arrays.parameters) {
    units_[parameter.unit].push_back(&parameter);
    // A block may ask for the dtype of a parameter of a later one.
    const auto options = torch::dtype(scalar_type(arrays.compute)).device(torch::kMeta);
    const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::Fake);
    model_.place(parameter.slot, torch::empty(parameter.shape, options));
  }
  size_t next = 0;
  for (size_t b = 0; b < model.spec.blocks.size(); ++b) {
    const auto& block = model.spec.blocks[b];
    auto& slots = slots_of_.emplace_back();
    for (size_t i = 0; i < block.parameters.size(); ++i) slots.push_back(next++);
    for (const auto& name : block.shared) slots.push_back(model.spec.slot(name));
    auto& units = units_of_.emplace_back();
    for (const size_t slot : slots) {
      const size_t unit = arrays.parameters[slot].unit;
      if (std::ranges::find(units, unit) == units.end()) units.push_back(unit);
      first_use_[unit] = std::min(first_use_[unit], b);
    }
  }
}

void ModelPass::gather(size_t block) {
  for (const size_t unit : units_of_[block]) {
    if (gathered_[unit]) continue;
    gathered_[unit] = true;
    std::vector<Value> parts;
    for (const auto* parameter : units_[unit]) parts.push_back(parameters_[parameter->slot]);
    const auto whole = gathered(trace_.text(), arrays_, units_[unit], parts);
    for (size_t i = 0; i < whole.size(); ++i) {
      const auto& parameter = *units_[unit][i];
      model_.place(parameter.slot, trace_.tensor(whole[i]).requires_grad_(parameter.trained));
    }
  }
}

void ModelPass::gather_again(size_t block) {
  auto& text = trace_.text();
  for (const size_t unit : units_of_[block]) {
    const bool kept = !units_[unit].front()->sharded || plan_.units[unit].keep_after_forward;
    if (kept || gathered_again_[unit]) continue;
    gathered_again_[unit] = true;
    std::vector<Value> parts;
    for (const auto* parameter : units_[unit]) parts.push_back(parameters_[parameter->slot]);
    const auto whole = gathered(text, arrays_, units_[unit], text.barrier(parts));
    for (size_t i = 0; i < whole.size(); ++i) trace_.write(model_.slots[units_[unit][i]->slot], whole[i]);
  }
}

torch::Tensor ModelPass::run(size_t block, const torch::Tensor& x) {
  try {
    return model_.blocks[block]->forward(x, *context_);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("block {}: {}", model_.spec.blocks[block].name, error.what()));
  }
}

Value ModelPass::forward(const ForwardContext& context) {
  const torch::NoGradGuard no_grad;
  context_ = context;
  torch::Tensor x;
  for (size_t b = 0; b < graphs_.size(); ++b) {
    gather(b);
    x = run(b, x);
  }
  return trace_.read(x);
}

Value ModelPass::forward_for_backward(const ForwardContext& context) {
  context_ = context;
  const auto& spec = model_.spec;
  const size_t first = spec.first_trained_block();
  torch::Tensor x;
  for (size_t b = 0; b < graphs_.size(); ++b) {
    gather(b);
    const bool again = is_recomputed(spec, job_.recompute, b);
    if (x.defined()) graphs_[b].input = x.detach().requires_grad_(!again && b >= first && spec.passes_gradient(b));
    const torch::AutoGradMode records(b >= first && !again);
    x = run(b, graphs_[b].input);
    if (b >= first && !again) graphs_[b].output = x;
    x = x.detach();
  }
  return trace_.read(x);
}

void ModelPass::recompute(size_t last) {
  size_t first = last;
  while (joins_recomputation(model_.spec, job_.recompute, first)) --first;
  auto x = trace_.tensor(trace_.text().barrier({trace_.read(graphs_[first].input)}).front());
  context_->recomputes = true;
  for (size_t b = first; b <= last; ++b) {
    gather_again(b);
    graphs_[b].input = x.requires_grad_(model_.spec.passes_gradient(b));
    const torch::AutoGradMode records(true);
    graphs_[b].output = run(b, graphs_[b].input);
    x = graphs_[b].output.detach();
  }
  context_->recomputes = false;
}

torch::Tensor ModelPass::differentiate(size_t block, const torch::Tensor& gradient) {
  auto [input, output] = std::exchange(graphs_[block], {});
  if (!output.requires_grad()) return {};
  std::vector<torch::Tensor> wanted;
  std::vector<size_t> slots;
  for (const size_t slot : slots_of_[block])
    if (arrays_.parameters[slot].trained) slots.push_back(slot), wanted.push_back(model_.slots[slot]);
  const bool passes = input.defined() && input.requires_grad();
  if (passes) wanted.push_back(input);
  auto found = torch::autograd::grad({output}, wanted, {gradient}, /*retain_graph=*/false, /*create_graph=*/false,
                                     /*allow_unused=*/true);
  for (size_t i = 0; i < slots.size(); ++i) {
    auto& sum = gradients_[slots[i]];
    if (found[i].defined()) sum = sum.defined() ? sum + found[i] : found[i];
  }
  return passes ? found.back() : torch::Tensor();
}

void ModelPass::take_unit(size_t unit, const Take& take) {
  std::vector<const ParameterArray*> trained;
  std::vector<Value> values;
  for (const auto* parameter : units_[unit]) {
    if (!parameter->trained) continue;
    auto& gradient = gradients_[parameter->slot];
    trained.push_back(parameter);
    values.push_back(gradient.defined() ? trace_.read(gradient)
                                        : trace_.text().splat(0, {arrays_.compute, parameter->shape}));
    gradient.reset();
  }
  if (!trained.empty()) take(trained, values);
}

void ModelPass::backward(const Value& factor, const Take& take) {
  const auto& spec = model_.spec;
  const size_t first = spec.first_trained_block();
  auto gradient = trace_.tensor(factor);
  for (size_t b = graphs_.size(); b-- > 0;) {
    if (b >= first) {
      gather_again(b);
      if (!graphs_[b].output.defined()) recompute(b);
      try {
        gradient = differentiate(b, gradient);
      } catch (const Error& error) {
        throw Error(error.code(), fmt::format("backward of block {}: {}", spec.blocks[b].name, error.what()));
      }
    }
    for (size_t unit = 0; unit < first_use_.size(); ++unit)
      if (first_use_[unit] == b) take_unit(unit, take);
  }
}

}  // namespace runner::xla
