// Converts DeepSpeed's options to a ParallelPlan.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "strategies/zero/entry.hpp"
#include "strategies/zero/options.hpp"

namespace runner {

namespace {

constexpr int64_t no_limit = std::numeric_limits<int64_t>::max();

/// The default is the size of the largest block, so that the reduction of one block overlaps with the backward of the
/// next one. With streams it is at least a million elements per rank, to hide the latency of a collective.
int64_t default_bucket(const Job& job) {
  int64_t elements = job.accelerator.streams ? int64_t{1'000'000} * job.sharing_ranks() : 1;
  for (const auto& block : job.model->blocks) elements = std::max(elements, block.parameter_count());
  return elements;
}

/// A block larger than the limit is one bucket. The smaller one of reduce_bucket_size and allgather_bucket_size is used for both,
/// because a bucket is reduced and gathered with the same shards.
std::vector<Unit> buckets(const Job& job, const ZeroOptions& options, const std::vector<size_t>& slots) {
  if (!job.unit_of_parameter.empty()) return resident_units_of_keys(*job.model, slots, job.unit_of_parameter);
  const auto &reduced = options.reduce_bucket_size, &gathered = options.allgather_bucket_size;
  const int64_t limit =
      reduced || gathered ? std::min(reduced.value_or(no_limit), gathered.value_or(no_limit)) : default_bucket(job);
  return resident_units(*job.model, slots, [limit](const UnitFill& fill) { return fill.held + fill.next > limit; });
}

std::vector<size_t> all_slots(const Job& job) {
  std::vector<size_t> slots(job.model->parameters().size());
  std::iota(slots.begin(), slots.end(), 0);
  return slots;
}

/// Parameters below the threshold for parameters, as long as their sum is within the threshold for the model.
std::vector<size_t> persistent_slots(const Job& job, const ZeroOptions& options) {
  int64_t left = options.stage3_model_persistence_threshold.value_or(no_limit);
  auto parameters = job.model->parameters();
  std::vector<size_t> slots;
  for (size_t slot = 0; slot < parameters.size(); ++slot) {
    int64_t numel = parameters[slot]->numel();
    if (numel >= options.stage3_param_persistence_threshold || numel > left) continue;
    left -= numel;
    slots.push_back(slot);
  }
  return slots;
}

/// Sets keep_after_forward. Between the forward and the backward of a unit, all later units are used twice; their
/// elements are the reuse distance.
void keep_what_is_reused_soon(const Job& job, const ZeroOptions& options, std::vector<Unit>& units) {
  const int64_t distance_max = options.stage3_max_reuse_distance, live_max = options.stage3_max_live_parameters;
  int64_t distance = 0, live = 0;
  const auto parameters = job.model->parameters();
  for (size_t u = units.size(); u-- > 0;) {
    int64_t elements = elements_of(parameters, units[u].slots);
    bool used_at_once = units[u].blocks.back() + 1 == job.model->blocks.size();
    units[u].keep_after_forward = used_at_once || (distance <= distance_max && live + elements <= live_max);
    if (units[u].keep_after_forward) live += elements;
    distance += 2 * elements;
  }
}

void shard_parameters(const Job& job, const ZeroOptions& options, ParallelPlan& plan) {
  auto persistent = persistent_slots(job, options);
  plan.units = job.unit_of_parameter.empty() ? make_units(*job.model, "block", 0, {})
                                             : units_of_keys(*job.model, job.unit_of_parameter);
  for (auto& unit : plan.units)
    std::erase_if(unit.slots,
                  [&](size_t slot) { return std::binary_search(persistent.begin(), persistent.end(), slot); });
  std::erase_if(plan.units, [](const Unit& unit) { return unit.slots.empty(); });
  keep_what_is_reused_soon(job, options, plan.units);
  for (auto& unit : buckets(job, options, persistent)) plan.units.push_back(unit);

  plan.prefetch_elements = options.stage3_prefetch_bucket_size;
  bool ahead = plan.prefetch_elements > 0 && options.overlap_comm;
  plan.forward_prefetch = ahead;
  plan.backward_prefetch = ahead ? ParallelPlan::Prefetch::before : ParallelPlan::Prefetch::none;
}

/// The tier for `device`, "cpu" or "nvme", if offloading is switched on.
Tier tier(const Job& job, bool offloads, const std::string& device) {
  if (!offloads) return Tier::device;
  if (device == "nvme") return Tier::nvme;
  return job.accelerator.own_memory ? Tier::host : Tier::device;
}

/// Offloads the shards of parameters. With NVMe, the first units stay in host memory, up to max_in_cpu elements.
void offload_parameters(const Job& job, const ZeroOptions& options, ParallelPlan& plan) {
  Tier where = tier(job, options.offload_parameters, options.offload_params_device);
  int64_t in_memory = options.max_in_cpu;
  for (auto& unit : plan.units) {
    if (unit.resident) continue;
    unit.tier = where;
    if (where != Tier::nvme) continue;
    int64_t shard = layout_of(*job.model, plan, unit).shard;
    if (shard <= in_memory) {
      unit.tier = job.accelerator.own_memory ? Tier::host : Tier::device;
      in_memory -= shard;
    }
  }
}

void offload(const Job& job, const ZeroOptions& options, ParallelPlan& plan) {
  plan.separate_host = job.accelerator.own_memory;
  plan.pin_memory = job.accelerator.pinned && options.pin_memory;
  plan.optimizer = tier(job, options.offload_optimizer, options.offload_optimizer_device);
  offload_parameters(job, options, plan);
  plan.swap.folder = options.nvme_path.value_or("");
  plan.swap.block_size = options.block_size;
  plan.swap.queue_depth = static_cast<int>(options.queue_depth);
  plan.swap.threads = static_cast<int>(options.thread_count);
  plan.swap.tile = options.sub_group_size.value_or(1 << 20);
  plan.swap.update_buffers = static_cast<int>(options.optimizer_buffer_count);
  plan.swap.parameter_buffers = static_cast<int>(options.params_buffer_count);
}

DType wire_dtype(const ZeroOptions& options, DType otherwise) {
  const auto& given = options.communication_data_type;
  if (!given) return otherwise;
  return *given == "fp32" ? DType::float32 : *given == "bf16" ? DType::bfloat16 : DType::float16;
}

}  // namespace

ParallelPlan zero_plan(const Job& job) { return with_options(zero_option_table, zero_plan_of)(job); }

ParallelPlan zero_plan_of(const Job& job, const ZeroOptions& options) {
  ParallelPlan plan;
  plan.mesh = mesh_with_shards(job, static_cast<int>(options.mics_shard_size.value_or(job.sharing_ranks())));
  plan.alignment = alignment_of(job);
  plan.master = job.precision.parameter;
  plan.parameter = job.precision.compute;
  plan.reduce = wire_dtype(options, plan.parameter);
  plan.reduce_every_micro_batch = options.stage >= 2;
  plan.predivide = options.gradient_predivide_factor;
  // Sums of several micro-batches, and sums that are multiplied (predivide), have at least the precision of the
  // masters.
  DType wide = wider(plan.reduce, plan.master);
  bool several = job.most_micro_batches() > 1;
  plan.accumulate = several && !plan.reduce_every_micro_batch ? wide : plan.reduce;
  plan.gradient = (several && plan.reduce_every_micro_batch) || plan.predivide != 1.0 ? wide : plan.reduce;
  plan.reduce_by_all_reduce = !options.reduce_scatter;
  plan.gather_by_broadcast = !options.allgather_partitions;
  plan.overlap = job.accelerator.streams && options.overlap_comm;
  plan.prefetches = job.accelerator.streams;
  plan.update_elements = options.sub_group_size.value_or(1'000'000'000);
  if (options.stage == 3)
    shard_parameters(job, options, plan);
  else
    plan.units = buckets(job, options, all_slots(job));
  offload(job, options, plan);
  plan.loss_scale = zero_loss_scale(options);
  return plan;
}

LossScalePolicy zero_loss_scale(const ZeroOptions& options) {
  LossScalePolicy policy;
  policy.dynamic = options.loss_scale == 0.0;
  policy.initial = policy.dynamic ? std::exp2(options.initial_scale_power) : options.loss_scale;
  policy.window = options.loss_scale_window;
  policy.hysteresis = options.hysteresis;
  policy.consecutive_hysteresis = options.consecutive_hysteresis;
  policy.minimum = options.min_loss_scale;
  return policy;
}

}  // namespace runner
