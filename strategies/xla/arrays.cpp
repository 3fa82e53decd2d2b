#include "strategies/xla/arrays.hpp"

#include <algorithm>

#include "strategies/contract/dtype.hpp"
#include "strategies/xla/trace.hpp"

namespace runner::xla {

Arrays arrays_of(const ModelSpec& model, const ParallelPlan& plan, const OptimizerConfig& optimizer) {
  Arrays arrays{.replicas = plan.mesh.ranks(),
                .master = element_type(runner::scalar_type(plan.master)),
                .compute = element_type(runner::scalar_type(plan.parameter)),
                .reduce = element_type(runner::scalar_type(plan.reduce)),
                .parameters = {},
                .groups = {},
                .states = optimizer.states()};
  const auto specs = model.parameters();
  arrays.parameters.resize(specs.size());
  for (size_t u = 0; u < plan.units.size(); ++u)
    for (const size_t slot : plan.units[u].slots) {
      const auto& spec = *specs[slot];
      const auto settings = group_of(spec, optimizer);
      auto group = std::ranges::find(arrays.groups, settings);
      if (group == arrays.groups.end()) group = arrays.groups.insert(group, settings);
      const bool sharded = is_sharded(plan, plan.units[u]);
      const int64_t numel = spec.numel();
      arrays.parameters[slot] = {.slot = slot,
                                 .shape = spec.shape,
                                 .numel = numel,
                                 .part = sharded ? (numel + arrays.replicas - 1) / arrays.replicas : numel,
                                 .sharded = sharded,
                                 .trained = spec.trainable,
                                 .unit = u,
                                 .group = static_cast<size_t>(group - arrays.groups.begin())};
    }
  return arrays;
}

using pjrt::ModuleText, pjrt::Value;

namespace {

/// Parts [replicas, elements] of a flattened value, the last one filled up with zeros.
Value in_parts(ModuleText& text, const Value& value, const ParameterArray& parameter, int replicas) {
  const auto flat = text.reshape(value, {parameter.numel});
  const int64_t missing = parameter.part * replicas - parameter.numel;
  const auto padded = missing > 0 ? text.pad(flat, 0, 0, missing, 0) : flat;
  return text.reshape(padded, {replicas, parameter.part});
}

Value joined(ModuleText& text, const std::vector<Value>& values, int64_t dim) {
  return values.size() == 1 ? values[0] : text.concatenate(values, dim);
}

/// Elements [begin, begin + count) along a dimension.
Value cut(ModuleText& text, const Value& value, int64_t dim, int64_t begin, int64_t count) {
  return count == value.shape()[static_cast<size_t>(dim)] ? value : text.slice(value, dim, begin, begin + count);
}

}  // namespace

std::vector<Value> gathered(ModuleText& text, const Arrays& arrays,
                            const std::vector<const ParameterArray*>& parameters, const std::vector<Value>& parts) {
  std::vector<Value> sent, whole;
  for (const auto& part : parts) sent.push_back(text.convert(part, arrays.compute));
  if (!parameters.front()->sharded) return sent;
  const auto all = joined(text, sent, 0);
  const int64_t count = all.shape()[0];
  const auto by_device = text.reshape(text.all_gather(all, 0), {arrays.replicas, count});
  int64_t begin = 0;
  for (const auto* parameter : parameters) {
    const auto own = cut(text, by_device, 1, begin, parameter->part);
    const auto flat = text.reshape(own, {arrays.replicas * parameter->part});
    whole.push_back(text.reshape(cut(text, flat, 0, 0, parameter->numel), parameter->shape));
    begin += parameter->part;
  }
  return whole;
}

std::vector<Value> reduced(ModuleText& text, const Arrays& arrays, const std::vector<const ParameterArray*>& parameters,
                           const std::vector<Value>& gradients) {
  std::vector<Value> sums;
  const bool sharded = parameters.front()->sharded;
  if (arrays.replicas == 1 && !sharded) {
    for (const auto& gradient : gradients) sums.push_back(text.convert(gradient, arrays.master));
    return sums;
  }
  std::vector<Value> sent;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto narrow = text.convert(gradients[i], arrays.reduce);
    sent.push_back(sharded ? in_parts(text, narrow, *parameters[i], arrays.replicas)
                           : text.reshape(narrow, {1, parameters[i]->numel}));
  }
  const auto all = joined(text, sent, 1);
  const auto sum = sharded ? text.reduce_scatter(all, 0) : text.all_reduce(all);
  int64_t begin = 0;
  for (const auto* parameter : parameters) {
    const auto own = cut(text, sum, 1, begin, parameter->part);
    sums.push_back(text.convert(text.reshape(own, parameter->type(arrays.master).shape), arrays.master));
    begin += parameter->part;
  }
  return sums;
}

}  // namespace runner::xla
