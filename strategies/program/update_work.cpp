#include "strategies/program/update_work.hpp"

#include "strategies/optimizer/matrix_rounds.hpp"

namespace runner {

std::vector<UpdateCall> calls_of_update(const Job& job, const ParallelPlan& plan) {
  const auto& optimizer = *job.optimizer;
  if (!optimizer.needs_matrix) return {};
  const auto parameters = job.model->parameters();
  int64_t count = 0, values = 0;
  std::vector<UpdateCall> of_matrices;
  for (size_t u : trained_units(plan)) {
    if (!is_sharded(plan, plan.units[u])) continue;
    for (size_t slot : plan.units[u].slots) {
      const auto& shape = parameters[slot]->shape;
      if (!optimizer.needs_matrix(shape, parameters[slot]->of_layer)) continue;
      ++count;
      values += adafactor_sums(shape) - 1;
      for (const auto kind : {Collective::reduce, Collective::broadcast})
        of_matrices.push_back({kind, parameters[slot]->numel() * bytes_of(DType::bfloat16)});
    }
  }
  if (optimizer.kind == OptimizerKind::muon || count == 0) return of_matrices;
  const int64_t wide = std::max<int64_t>(4, bytes_of(plan.master));
  return {{Collective::all_reduce, values * wide}, {Collective::all_reduce, count * wide}};
}

std::vector<std::vector<int64_t>> matrices_of_update(const Job& job, const ParallelPlan& plan) {
  if (job.optimizer->kind != OptimizerKind::muon) return {};
  const auto parameters = job.model->parameters();
  std::vector<std::vector<int64_t>> own, shared;
  for (size_t u : trained_units(plan))
    for (size_t slot : plan.units[u].slots) {
      const auto& parameter = *parameters[slot];
      if (job.optimizer->needs_matrix(parameter.shape, parameter.of_layer))
        (is_sharded(plan, plan.units[u]) ? shared : own).push_back(parameter.shape);
    }
  // The rank 0 has the largest matrix of each round.
  const auto order = order_of_matrices(shared);
  for (size_t i = 0; i < order.size(); i += static_cast<size_t>(plan.shards())) own.push_back(shared[order[i]]);
  return own;
}

}  // namespace runner
