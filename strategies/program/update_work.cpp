#include "strategies/program/update_work.hpp"

#include "strategies/optimizer/matrix_rounds.hpp"

namespace runner {

namespace {

/// Calls use(parameter, sharded) for each parameter whose update reaches over all of it, of one optimizer.
template <typename Use>
void for_each_matrix(const Job& job, const ParallelPlan& plan, size_t optimizer, Use&& use) {
  const auto parameters = job.model->parameters();
  for (size_t u : trained_units(plan))
    for (size_t slot : plan.units[u].slots)
      if (const auto& one = *parameters[slot];
          job.optimizer_of(one) == optimizer && job.optimizer_at(optimizer).needs_matrix(one))
        use(one, is_sharded(plan, plan.units[u]));
}

void add_calls(const Job& job, const ParallelPlan& plan, size_t optimizer, std::vector<UpdateCall>& calls) {
  const bool muon = job.optimizer_at(optimizer).spec->kind == OptimizerKind::muon;
  const int64_t wide = std::max<int64_t>(4, bytes_of(plan.master));
  int64_t count = 0, values = 0;
  for_each_matrix(job, plan, optimizer, [&](const ParameterSpec& parameter, bool sharded) {
    if (!sharded) return;
    ++count;
    values += adafactor_sums(parameter.shape) - 1;
    if (!muon) return;
    for (const auto kind : {Collective::reduce, Collective::broadcast})
      calls.push_back({kind, parameter.numel() * bytes_of(DType::bfloat16)});
  });
  if (muon || count == 0) return;
  for (const int64_t elements : {values, count}) calls.push_back({Collective::all_reduce, elements * wide});
}

}  // namespace

std::vector<UpdateCall> calls_of_update(const Job& job, const ParallelPlan& plan) {
  std::vector<UpdateCall> calls;
  for (size_t number = 0; number < job.optimizer_count(); ++number) add_calls(job, plan, number, calls);
  return calls;
}

std::vector<std::vector<int64_t>> matrices_of_update(const Job& job, const ParallelPlan& plan, size_t optimizer) {
  if (job.optimizer_at(optimizer).spec->kind != OptimizerKind::muon) return {};
  std::vector<std::vector<int64_t>> own, shared;
  for_each_matrix(job, plan, optimizer, [&](const ParameterSpec& parameter, bool sharded) {
    (sharded ? shared : own).push_back(parameter.shape);
  });
  // The rank 0 has the largest matrix of each round.
  const auto order = order_of_matrices(shared);
  for (size_t i = 0; i < order.size(); i += static_cast<size_t>(plan.shards())) own.push_back(shared[order[i]]);
  return own;
}

}  // namespace runner
