#include "strategies/program/update_work.hpp"

#include <algorithm>

#include "strategies/contract/host_update.hpp"
#include "strategies/offload/swapped_arrays.hpp"
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

namespace {

int64_t wide_bytes(const ParallelPlan& plan) { return std::max<int64_t>(4, bytes_of(plan.master)); }

/// Copies of a part: of its gradient, and of narrower masters.
int64_t wide_copies(const ParallelPlan& plan) { return bytes_of(plan.master) < 4 ? 2 : 1; }

constexpr int64_t narrow = 2;  ///< bytes of bfloat16, in which Muon computes

/// Newton-Schulz iterations: two matrices and two squares of the smaller side.
int64_t iteration_bytes(const std::vector<int64_t>& shape) {
  const int64_t side = std::min(shape[0], shape[1]), other = std::max(shape[0], shape[1]);
  return 2 * narrow * (side * side + side * other);
}

/// Before the iterations, and after them, a matrix and the wide copies.
int64_t muon_bytes(const ParallelPlan& plan, const std::vector<int64_t>& shape, int64_t part) {
  return std::max(iteration_bytes(shape), narrow * shape[0] * shape[1] + part * wide_bytes(plan) * wide_copies(plan));
}

/// A matrix that several ranks share, and where its parts are.
struct SharedMatrix {
  std::vector<int64_t> shape;
  int64_t offset = 0, shard = 0;  ///< in the unit's flat buffer; elements of each rank of it
  int64_t bytes() const { return narrow * shape[0] * shape[1]; }
  /// Elements of a rank's part.
  int64_t part(int64_t rank) const {
    const int64_t begin = std::max(offset, rank * shard), end = std::min(offset + bytes() / narrow, (rank + 1) * shard);
    return std::max<int64_t>(0, end - begin);
  }
};

/// A rank that computes a matrix of the round has it until all ranks have their parts of the earlier ones of the result, and already
/// while the later ones are collected.
int64_t muon_round_bytes(const ParallelPlan& plan, const std::vector<SharedMatrix>& matrices) {
  std::vector<std::vector<int64_t>> shapes;
  for (const auto& matrix : matrices) shapes.push_back(matrix.shape);
  const auto order = order_of_matrices(shapes);
  const int64_t ranks = plan.shards(), wide = wide_bytes(plan) * wide_copies(plan);
  const auto count = static_cast<int64_t>(order.size());
  int64_t most = 0;
  for (int64_t begin = 0; begin < count; begin += ranks)
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const auto matrix = [&](int64_t owner) -> const SharedMatrix& {
        return matrices[order[static_cast<size_t>(begin + owner)]];
      };
      const int64_t owners = std::min(ranks, count - begin);
      const int64_t own = rank < owners ? matrix(rank).bytes() : 0;
      if (own > 0) most = std::max(most, iteration_bytes(matrix(rank).shape));
      for (int64_t owner = 0; owner < owners; ++owner)
        most = std::max(most, matrix(owner).bytes() + matrix(owner).part(rank) * wide + (owner == rank ? 0 : own));
    }
  return most;
}

/// On which side the update runs.
bool updates_on_host(const Job& job, const ParallelPlan& plan) {
  return !job.accelerator.own_memory || plan.optimizer != Tier::device;
}

/// A simulated device updates in its own memory, but with the CPU's kernels.
bool updates_by_cpu(const Job& job, const ParallelPlan& plan) {
  return job.accelerator.host_kernels || updates_on_host(job, plan);
}

/// `copies` in a wide dtype, in an update of one part after another (contract/tensor_update.hpp).
int64_t operator_update_bytes(const Job& job, const ParallelPlan& plan, int64_t largest_part, int64_t copies) {
  return std::min(largest_part, tensor_update_elements(updates_on_host(job, plan))) * copies * wide_bytes(plan);
}

/// Whether SGD needs copies in float32 (contract/tensor_update.hpp).
bool widens_sgd(const Job& job, const ParallelPlan& plan, const OptimizerSpec& optimizer) {
  return optimizer.kind == OptimizerKind::sgd && bytes_of(plan.master) < 4 && updates_by_cpu(job, plan);
}

/// Whether the kernel in host_update.hpp updates the parameters.
bool has_host_kernel(const Job& job, const ParallelPlan& plan, const OptimizerSpec& optimizer) {
  return updates_on_host(job, plan) && plan.master == DType::float32 && optimizer.has_host_kernel();
}

/// Copies of gradients in the dtype of the masters, in a fused update of `elements`.
int64_t cast_gradient_bytes(const Job& job, const ParallelPlan& plan, const OptimizerSpec& optimizer,
                            int64_t elements) {
  if (has_host_kernel(job, plan, optimizer) || plan.gradient == plan.master) return 0;
  return (plan.update_elements > 0 ? std::min(elements, plan.update_elements) : elements) * bytes_of(plan.master);
}

/// Sums, copies of gradients and whole matrices in an update that reaches over whole parameters (contract/matrix_update.hpp).
int64_t matrix_update_bytes(const Job& job, const ParallelPlan& plan, size_t number, int64_t largest_part) {
  const auto& optimizer = *job.optimizer_at(number).spec;
  const auto parameters = job.model->parameters();
  const bool adafactor = optimizer.kind == OptimizerKind::adafactor;
  int64_t sums = 0, most = adafactor ? largest_part * wide_bytes(plan) * wide_copies(plan) : 0;
  int64_t others = 0;  // elements of parameters that have another update
  std::vector<SharedMatrix> shared;
  for (size_t u : trained_units(plan)) {
    const auto layout = layout_of(parameters, plan, plan.units[u]);
    for (const auto& item : layout.items) {
      const auto& shape = parameters[item.slot]->shape;
      const int64_t own = std::min(item.numel, layout.shard);
      if (job.optimizer_of(*parameters[item.slot]) != number) continue;
      if (!optimizer.needs_matrix(shape, parameters[item.slot]->of_layer)) {
        others += own;
        continue;
      }
      if (adafactor) {
        sums += adafactor_sums(shape) * wide_bytes(plan);
        continue;
      }
      if (is_sharded(plan, plan.units[u]))
        shared.push_back({.shape = shape, .offset = item.offset, .shard = layout.shard});
      else
        most = std::max(most, muon_bytes(plan, shape, own));
    }
  }
  if (adafactor) return sums + most;
  return std::max({most, muon_round_bytes(plan, shared), cast_gradient_bytes(job, plan, optimizer, others)});
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

/// An upper bound of the elements that the optimizer `number` updates.
UpdatedElements elements_of(const Job& job, const ParallelPlan& plan, size_t number, const UpdatedElements& elements) {
  if (job.optimizer_count() == 1) return elements;
  UpdatedElements own{.shards = std::vector<int64_t>(plan.units.size())};
  const auto parameters = job.model->parameters();
  for (size_t u : trained_units(plan)) {
    const auto layout = layout_of(parameters, plan, plan.units[u]);
    for (const auto& item : layout.items) {
      if (job.optimizer_of(*parameters[item.slot]) != number) continue;
      const int64_t part = std::min(item.numel, layout.shard);
      own.largest_part = std::max(own.largest_part, part);
      own.shards[u] = std::min(own.shards[u] + part, layout.shard);
    }
    own.all = std::min(own.all + own.shards[u], elements.all);
  }
  return own;
}

/// Temporary bytes of the update by the optimizer `number`. Casts are made in parts of update_elements. The kernel in
/// host_update.hpp needs none.
int64_t bytes_of_one(const Job& job, const ParallelPlan& plan, size_t number, const UpdatedElements& elements) {
  const auto use = job.optimizer_at(number);
  const auto& optimizer = *use.spec;
  if (optimizer.needs_matrix) return matrix_update_bytes(job, plan, number, elements.largest_part);
  const int64_t tiles = tile_bytes(job, plan, elements.shards);
  if (has_host_kernel(job, plan, optimizer)) return tiles;
  if (!optimizer.has_fused_kernel || plan.reducer.qadam_warmup || optimizer.reach == OptimizerSpec::Reach::block)
    return operator_update_bytes(job, plan, elements.largest_part, optimizer.operator_copies);
  if (widens_sgd(job, plan, optimizer))  // the parameter, its gradient and its states
    return operator_update_bytes(job, plan, elements.largest_part, 2 + use.states);
  int64_t cast = elements.all;
  if (plan.updates_beside()) {  // the update casts one unit at a time
    cast = 0;
    for (size_t u : trained_units(plan)) cast = std::max(cast, elements.shards[u]);
  }
  return tiles + cast_gradient_bytes(job, plan, optimizer, cast);
}

}  // namespace

/// The most bytes over the optimizers, which update their parameters one after the other.
int64_t update_bytes(const Job& job, const ParallelPlan& plan, const UpdatedElements& elements) {
  int64_t most = 0;
  for (size_t number = 0; number < job.optimizer_count(); ++number)
    most = std::max(most, bytes_of_one(job, plan, number, elements_of(job, plan, number, elements)));
  return most;
}

}  // namespace runner
