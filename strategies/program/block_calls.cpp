#include "strategies/program/block_calls.hpp"

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

/// Calls of a list entry, and the payload of all of them.
std::pair<int64_t, int64_t> calls_and_bytes(const Job& job, const ParallelPlan& plan, const TensorCollective& one,
                                            Axis axis) {
  const auto& model = *job.model;
  int64_t tokens = job.micro_batch_size * model.seq_len;
  const int64_t chunk = model.loss_chunk_tokens > 0 ? model.loss_chunk_tokens : tokens;
  const int64_t calls = one.per_chunk ? (tokens + chunk - 1) / chunk : 1;
  const bool of_stream = axis == Axis::tensor && one.kind != TensorCollective::Kind::all_reduce &&
                         one.values != TensorCollective::Values::statistics;
  if (of_stream) tokens = round_up(tokens, int64_t{model.division.ranks});
  return {calls,
          std::llround(static_cast<double>(tokens) * one.elements_per_token) * element_bytes(job, plan, one.values)};
}

/// The message to the next rank of the context axis, and the one from the rank before.
void add_exchange(const Job& job, BlockCalls call, std::vector<BlockCalls>& list) {
  const auto& [ranks, rank, form] = job.model->context;
  const int stride = job.mesh.stride(Axis::context), around = (ranks - 1) * stride;
  call.ranks = 2;
  call.stride = rank + 1 == ranks ? around : stride;
  list.push_back(call);
  call.stride = rank == 0 ? around : stride;
  call.incoming = true;
  list.push_back(call);
}

/// Adds the calls of the instruction's block over one axis.
void add_calls(const Job& job, const ParallelPlan& plan, const Instruction& i, Axis axis,
               std::vector<BlockCalls>& list) {
  const auto& model = *job.model;
  const auto& block = model.blocks[i.block];
  const bool backward = passes_back(i.op), of_context = axis == Axis::context;
  const bool output_unused = i.op == Op::recompute && !joins_recomputation(model, job.recompute, i.block + 1u);
  const auto& forward_list = of_context ? block.context_forward : block.tensor_forward;
  const auto& backward_list = of_context ? block.context_backward : block.tensor_backward;
  for (const auto& one : backward ? backward_list : forward_list) {
    if (one.of_output && output_unused) continue;
    if (one.of_input && !needs_input_gradient(model, i.block)) continue;
    const auto [calls, bytes] = calls_and_bytes(job, plan, one, axis);
    const BlockCalls call{.axis = axis,
                          .kind = kind_of(one.kind),
                          .ranks = job.mesh.size(axis),
                          .stride = job.mesh.stride(axis),
                          .calls = calls,
                          .bytes = bytes};
    if (one.kind == TensorCollective::Kind::exchange)
      add_exchange(job, call, list);
    else
      list.push_back(call);
  }
}

}  // namespace

std::vector<BlockCalls> block_calls(const Job& job, const ParallelPlan& plan, const Instruction& i) {
  if (i.block == Instruction::none || is_transfer(i.op) || i.op == Op::backward_weight) return {};
  std::vector<BlockCalls> list;
  if (job.model->division.divides()) add_calls(job, plan, i, Axis::tensor, list);
  if (job.model->context.divides()) add_calls(job, plan, i, Axis::context, list);
  return list;
}

}  // namespace runner
