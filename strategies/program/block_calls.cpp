#include "strategies/program/block_calls.hpp"

#include <algorithm>
#include <cmath>

#include "runner/base/round_up.hpp"

namespace runner {

namespace {

int64_t element_bytes(const Job& job, const ParallelPlan& plan, BlockCollective::Values values) {
  switch (values) {
    case BlockCollective::Values::compute:
      return bytes_of(job.precision.compute);
    case BlockCollective::Values::table:
      return bytes_of(plan.parameter);
    case BlockCollective::Values::statistics:
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
std::pair<int64_t, int64_t> calls_and_bytes(const Job& job, const ParallelPlan& plan, const BlockCollective& one,
                                            Axis axis) {
  const auto& model = *job.model;
  int64_t tokens = job.micro_batch_size * model.seq_len;
  const int64_t chunk = model.loss_chunk_tokens > 0 ? model.loss_chunk_tokens : tokens;
  const int64_t calls = one.per_chunk ? (tokens + chunk - 1) / chunk : 1;
  const bool of_stream =
      axis == Axis::tensor && one.kind != Collective::all_reduce && one.values != BlockCollective::Values::statistics;
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

/// Adds the calls of the instruction's block over one axis. `collectives`: those of the block over this axis.
void add_calls(const Job& job, const ParallelPlan& plan, const Instruction& i, Axis axis,
               const BlockCollectives& collectives, std::vector<BlockCalls>& list) {
  const auto& model = *job.model;
  const bool output_unused = i.op == Op::recompute && !joins_recomputation(model, job.recompute, i.block + 1u);
  for (const auto& one : passes_back(i.op) ? collectives.backward : collectives.forward) {
    if (one.of_output && output_unused) continue;
    if (one.of_input && !needs_input_gradient(model, i.block)) continue;
    const auto [calls, bytes] = calls_and_bytes(job, plan, one, axis);
    const BlockCalls call{.axis = axis,
                          .kind = one.kind,
                          .ranks = job.mesh.size(axis),
                          .stride = job.mesh.stride(axis),
                          .calls = calls,
                          .bytes = bytes};
    if (one.kind == Collective::transfer)
      add_exchange(job, call, list);
    else
      list.push_back(call);
  }
}

}  // namespace

std::vector<BlockCalls> block_calls(const Job& job, const ParallelPlan& plan, const Instruction& i) {
  if (i.block == Instruction::none || is_transfer(i.op) || i.op == Op::backward_weight) return {};
  const auto& block = job.model->blocks[i.block];
  std::vector<BlockCalls> list;
  add_calls(job, plan, i, Axis::tensor, block.over_tensor_axis, list);
  add_calls(job, plan, i, Axis::context, block.over_context_axis, list);
  return list;
}

}  // namespace runner
