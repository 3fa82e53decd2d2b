#include "strategies/program/update_memory.hpp"

#include <algorithm>
#include <functional>

#include "strategies/contract/host_update.hpp"
#include "strategies/offload/swapped_arrays.hpp"
#include "strategies/optimizer/matrix_rounds.hpp"

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

/// A rank that has a matrix of a round gets or sends another one of that round.
int64_t muon_round_bytes(const ParallelPlan& plan, const std::vector<std::vector<int64_t>>& shapes, int64_t part) {
  const auto order = order_of_matrices(shapes);
  const auto ranks = static_cast<size_t>(plan.shards());
  int64_t most = 0;
  for (size_t begin = 0; begin < order.size(); begin += ranks) {
    std::vector<int64_t> elements;
    for (size_t i = begin; i < std::min(order.size(), begin + ranks); ++i)
      elements.push_back(shapes[order[i]][0] * shapes[order[i]][1]);
    std::ranges::sort(elements, std::greater());
    most = std::max(most, elements[0] + (elements.size() > 1 ? elements[1] : 0));
  }
  return most * bytes_of(DType::bfloat16) + part * wide_bytes(plan) * wide_copies(plan);
}

/// Wide copies in an update by LibTorch's operators (contract/tensor_update.hpp).
int64_t operator_update_bytes(const Job& job, const ParallelPlan& plan, int64_t largest_part, bool on_host) {
  return std::min(largest_part, tensor_update_elements(on_host)) * job.optimizer->operator_copies * wide_bytes(plan);
}

/// Sums, copies of gradients and whole matrices in an update that reaches over whole parameters (contract/matrix_update.hpp).
int64_t matrix_update_bytes(const Job& job, const ParallelPlan& plan, int64_t largest_part) {
  const auto& optimizer = *job.optimizer;
  const auto parameters = job.model->parameters();
  int64_t sums = 0, part = 0, most = largest_part * wide_bytes(plan) * wide_copies(plan);
  std::vector<std::vector<int64_t>> shared;
  for (size_t u : trained_units(plan)) {
    const auto layout = layout_of(*job.model, plan, plan.units[u]);
    for (const auto& item : layout.items) {
      const auto& shape = parameters[item.slot]->shape;
      if (!optimizer.needs_matrix(shape, parameters[item.slot]->of_layer)) continue;
      const int64_t own = std::min(item.numel, layout.shard);
      if (optimizer.kind == OptimizerKind::adafactor) {
        sums += adafactor_sums(shape) * wide_bytes(plan);
        continue;
      }
      most = std::max(most, muon_bytes(plan, shape, own));
      if (!is_sharded(plan, plan.units[u])) continue;
      shared.push_back(shape);
      part = std::max(part, own);
    }
  }
  return sums + (shared.empty() ? most : std::max(most, muon_round_bytes(plan, shared, part)));
}

/// Tiles of the arrays in a rank's file; 0 if no state is in the file.
int64_t tile_bytes(const Job& job, const ParallelPlan& plan, const std::vector<int64_t>& shards) {
  const auto use = plan.swap_use();
  if (!use.state) return 0;
  const auto array = [](const char* name, DType dtype) {
    return SwappedArrays::Array{name, static_cast<int>(bytes_of(dtype))};
  };
  std::vector<SwappedArrays::Array> arrays;
  for (const auto& state : job.optimizer->states) arrays.push_back(array(state.c_str(), DType::float32));
  if (use.master) arrays.push_back(array("parameter", DType::float32));
  if (use.sent) arrays.push_back(array("sent", plan.parameter));
  int64_t elements = 0;
  for (const int64_t shard : shards) elements += SwappedArrays::whole_units(shard);
  return stream_buffer_bytes(plan.swap.tile, arrays, plan.swap.update_buffers, elements);
}

}  // namespace

/// Casts are made in parts of update_elements. The kernel in host_update.hpp needs none.
int64_t update_bytes(const Job& job, const ParallelPlan& plan, const UpdatedElements& elements) {
  const DType master = plan.master;
  const bool on_host = !job.accelerator.own_memory || plan.optimizer != Tier::device,
             has_kernel = on_host && master == DType::float32 && job.optimizer->has_host_kernel();
  if (job.optimizer->needs_matrix) return matrix_update_bytes(job, plan, elements.largest_part);
  const int64_t tiles = tile_bytes(job, plan, elements.shards);
  if (has_kernel) return tiles;
  if (!job.optimizer->has_fused_kernel || job.optimizer->reach == OptimizerSpec::Reach::block)
    return operator_update_bytes(job, plan, elements.largest_part, on_host);
  if (plan.gradient == master) return tiles;
  int64_t cast = elements.all;
  if (plan.updates_beside()) {  // the update casts one unit at a time
    cast = 0;
    for (size_t u : trained_units(plan)) cast = std::max(cast, elements.shards[u]);
  }
  if (plan.update_elements > 0) cast = std::min(cast, plan.update_elements);
  return tiles + cast * bytes_of(master);
}

}  // namespace runner
