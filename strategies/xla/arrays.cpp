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

}  // namespace runner::xla
