#include "strategies/program/tensor_calls.hpp"

#include <algorithm>
#include <cmath>

#include "runner/base/round_up.hpp"

namespace runner {

namespace {

Collective kind_of(TensorCollective::Kind kind) {
  switch (kind) {
    case TensorCollective::Kind::all_reduce:
      return Collective::all_reduce;
    case TensorCollective::Kind::all_gather:
      return Collective::all_gather;
    case TensorCollective::Kind::reduce_scatter:
      return Collective::reduce_scatter;
    case TensorCollective::Kind::all_to_all:
      return Collective::all_to_all;
    case TensorCollective::Kind::exchange:
      return Collective::transfer;
  }
  return Collective::barrier;
}

int64_t element_bytes(const Job& job, const ParallelPlan& plan, TensorCollective::Values values) {
  switch (values) {
    case TensorCollective::Values::compute:
      return bytes_of(job.precision.compute);
    case TensorCollective::Values::table:
      return bytes_of(plan.parameter);
    case TensorCollective::Values::statistics:
      return std::max<int64_t>(4, bytes_of(job.precision.compute));
  }
  return 0;
}

/// Whether the gradient of the block's input is needed: for an earlier block, or for the block's norm before its first matrix.
bool needs_input_gradient(const ModelSpec& model, size_t block) {
  if (model.passes_gradient(block)) return true;
  for (const auto& parameter : model.blocks[block].parameters) {
    if (parameter.split) return false;
    if (parameter.trainable) return true;
  }
  return false;
}

TensorCalls calls_of(const Job& job, const ParallelPlan& plan, const TensorCollective& one) {
  const auto& model = *job.model;
  int64_t tokens = job.micro_batch_size * model.seq_len;
  const int64_t chunk = model.loss_chunk_tokens > 0 ? model.loss_chunk_tokens : tokens;
  const int64_t calls = one.per_chunk ? (tokens + chunk - 1) / chunk : 1;
  if (one.kind != TensorCollective::Kind::all_reduce && one.values != TensorCollective::Values::statistics)
    tokens = round_up(tokens, int64_t{model.division.ranks});
  return {.kind = kind_of(one.kind),
          .calls = calls,
          .bytes = std::llround(static_cast<double>(tokens) * one.elements_per_token) *
                   element_bytes(job, plan, one.values)};
}

}  // namespace

std::vector<TensorCalls> tensor_calls(const Job& job, const ParallelPlan& plan, const Instruction& i) {
  const auto& model = *job.model;
  if (!model.division.divides() || i.block == Instruction::none || is_transfer(i.op)) return {};
  const auto& block = model.blocks[i.block];
  const bool backward = i.op == Op::backward;
  const bool output_unused = i.op == Op::recompute && !joins_recomputation(model, job.recompute, i.block + 1u);
  std::vector<TensorCalls> list;
  for (const auto& one : backward ? block.tensor_backward : block.tensor_forward) {
    if (one.of_output && output_unused) continue;
    if (one.of_input && !needs_input_gradient(model, i.block)) continue;
    list.push_back(calls_of(job, plan, one));
  }
  return list;
}

}  // namespace runner
