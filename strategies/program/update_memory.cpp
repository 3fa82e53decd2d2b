#include "strategies/program/update_memory.hpp"

#include <algorithm>

#include "strategies/contract/host_update.hpp"

namespace runner {

namespace {

int64_t wide_bytes(const ParallelPlan& plan) { return std::max<int64_t>(4, bytes_of(plan.master)); }

/// Copies of a part: of its gradient, and of narrower masters.
int64_t wide_copies(const ParallelPlan& plan) { return bytes_of(plan.master) < 4 ? 2 : 1; }

/// Newton-Schulz iterations in bfloat16: two matrices and two squares of the smaller side. Before them, a matrix and the wide copies.
int64_t muon_bytes(const ParallelPlan& plan, const std::vector<int64_t>& shape, int64_t part) {
  const int64_t numel = shape[0] * shape[1], side = std::min(shape[0], shape[1]), narrow = bytes_of(DType::bfloat16);
  return std::max(narrow * 2 * (numel + side * side), narrow * numel + part * wide_bytes(plan) * wide_copies(plan));
}

}  // namespace

int64_t operator_update_bytes(const Job& job, const ParallelPlan& plan, int64_t largest_part, bool on_host) {
  return std::min(largest_part, tensor_update_elements(on_host)) * job.optimizer->operator_copies * wide_bytes(plan);
}

int64_t matrix_update_bytes(const Job& job, const ParallelPlan& plan, int64_t largest_part) {
  const auto& optimizer = *job.optimizer;
  const auto parameters = job.model->parameters();
  int64_t sums = 0, most = largest_part * wide_bytes(plan) * wide_copies(plan);
  for (size_t u : trained_units(plan)) {
    const auto layout = layout_of(*job.model, plan, plan.units[u]);
    for (const auto& item : layout.items) {
      const auto& shape = parameters[item.slot]->shape;
      if (!optimizer.needs_matrix(shape, parameters[item.slot]->of_layer)) continue;
      if (optimizer.kind == OptimizerKind::muon)
        most = std::max(most, muon_bytes(plan, shape, std::min(item.numel, layout.shard)));
      else
        sums += adafactor_sums(shape) * wide_bytes(plan);
    }
  }
  return sums + most;
}

}  // namespace runner
