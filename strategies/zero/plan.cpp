// Converts DeepSpeed's options to a ShardPlan.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "strategies/zero/entry.hpp"

namespace runner {

namespace {

constexpr int64_t no_limit = std::numeric_limits<int64_t>::max();

int64_t integer(const Job& job, const char* name) { return job.options.at(name); }
bool is_on(const Job& job, const char* name) { return job.options.at(name) == true; }

/// The value of an option without a default, or `otherwise` if it is unset.
int64_t integer_or(const Job& job, const char* name, int64_t otherwise) {
  auto value = job.options.value(name, nlohmann::json());
  return value.is_number() ? value.get<int64_t>() : otherwise;
}

/// The default is the size of the largest block, so that the reduction of one block overlaps with the backward of the
/// next one. With streams it is at least a million elements per rank, to hide the latency of a collective.
int64_t default_bucket(const Job& job) {
  int64_t elements = job.accelerator.streams ? int64_t{1'000'000} * job.world_size : 1;
  for (const auto& block : job.model->blocks) elements = std::max(elements, block.parameter_count());
  return elements;
}

/// A block larger than the limit is one bucket. The smaller one of reduce_bucket_size and allgather_bucket_size is used for both,
/// because a bucket is reduced and gathered with the same shards.
std::vector<ShardUnit> buckets(const Job& job, const std::vector<size_t>& slots) {
  int64_t limit =
      std::min(integer_or(job, "reduce_bucket_size", no_limit), integer_or(job, "allgather_bucket_size", no_limit));
  if (limit == no_limit) limit = default_bucket(job);
  return resident_units(*job.model, slots, [limit](const UnitFill& fill) { return fill.held + fill.next > limit; });
}

std::vector<size_t> all_slots(const Job& job) {
  std::vector<size_t> slots(job.model->parameters().size());
  std::iota(slots.begin(), slots.end(), 0);
  return slots;
}

/// Parameters below the threshold for parameters, as long as their sum is within the threshold for the model.
std::vector<size_t> persistent_slots(const Job& job) {
  int64_t each = integer(job, "stage3_param_persistence_threshold");
  int64_t left = integer_or(job, "stage3_model_persistence_threshold", no_limit);
  auto parameters = job.model->parameters();
  std::vector<size_t> slots;
  for (size_t slot = 0; slot < parameters.size(); ++slot) {
    int64_t numel = parameters[slot]->numel();
    if (numel >= each || numel > left) continue;
    left -= numel;
    slots.push_back(slot);
  }
  return slots;
}

/// Sets keep_after_forward. Between the forward and the backward of a unit, all later units are used twice; their
/// elements are the reuse distance.
void keep_what_is_reused_soon(const Job& job, std::vector<ShardUnit>& units) {
  int64_t distance_max = integer(job, "stage3_max_reuse_distance");
  int64_t live_max = integer(job, "stage3_max_live_parameters");
  int64_t distance = 0, live = 0;
  for (size_t u = units.size(); u-- > 0;) {
    int64_t elements = elements_of(*job.model, units[u].slots);
    bool used_at_once = units[u].blocks.back() + 1 == job.model->blocks.size();
    units[u].keep_after_forward = used_at_once || (distance <= distance_max && live + elements <= live_max);
    if (units[u].keep_after_forward) live += elements;
    distance += 2 * elements;
  }
}

void shard_parameters(const Job& job, ShardPlan& plan) {
  auto persistent = persistent_slots(job);
  std::vector<ShardUnit> units;
  for (auto& unit : make_units(*job.model, "block", 0, {})) {
    std::erase_if(unit.slots,
                  [&](size_t slot) { return std::binary_search(persistent.begin(), persistent.end(), slot); });
    if (!unit.slots.empty())
      units.push_back({.slots = unit.slots,
                       .frozen = unit.frozen,
                       .blocks = unit.blocks,
                       .first_needed_in_backward = unit.first_needed_in_backward});
  }
  keep_what_is_reused_soon(job, units);
  plan.units = units;
  for (auto& unit : buckets(job, persistent)) plan.units.push_back(unit);

  plan.prefetch_elements = integer(job, "stage3_prefetch_bucket_size");
  bool ahead = plan.prefetch_elements > 0 && is_on(job, "overlap_comm");
  plan.forward_prefetch = ahead;
  plan.backward_prefetch = ahead ? ShardPlan::Prefetch::before : ShardPlan::Prefetch::none;
}

/// The tier that a pair of options selects: `option` switches offloading on, `device` is "cpu" or "nvme".
Tier tier(const Job& job, const char* option, const char* device) {
  if (!is_on(job, option)) return Tier::device;
  if (job.options.at(device) == "nvme") return Tier::nvme;
  return job.accelerator.own_memory ? Tier::host : Tier::device;
}

/// Offloads the shards of parameters. With NVMe, the first units stay in host memory, up to max_in_cpu elements.
void offload_parameters(const Job& job, ShardPlan& plan) {
  Tier where = tier(job, "offload_parameters", "offload_params_device");
  int64_t in_memory = integer(job, "max_in_cpu");
  for (auto& unit : plan.units) {
    if (unit.resident) continue;
    unit.shards = where;
    if (where != Tier::nvme) continue;
    int64_t shard = make_flat_layout(*job.model, unit.slots, plan.shards).shard;
    if (shard <= in_memory) {
      unit.shards = job.accelerator.own_memory ? Tier::host : Tier::device;
      in_memory -= shard;
    }
  }
}

void offload(const Job& job, ShardPlan& plan) {
  plan.separate_host = job.accelerator.own_memory;
  plan.pin_memory = job.accelerator.pinned && is_on(job, "pin_memory");
  plan.optimizer = tier(job, "offload_optimizer", "offload_optimizer_device");
  offload_parameters(job, plan);
  auto path = job.options.value("nvme_path", nlohmann::json());
  plan.swap.folder = path.is_string() ? path.get<std::string>() : "";
  plan.swap.block_size = integer(job, "block_size");
  plan.swap.queue_depth = static_cast<int>(integer(job, "queue_depth"));
  plan.swap.threads = static_cast<int>(integer(job, "thread_count"));
  plan.swap.tile = integer_or(job, "sub_group_size", 1 << 20);
  plan.swap.update_buffers = static_cast<int>(integer(job, "optimizer_buffer_count"));
  plan.swap.parameter_buffers = static_cast<int>(integer(job, "params_buffer_count"));
}

DType wire_dtype(const Job& job, DType otherwise) {
  auto value = job.options.value("communication_data_type", nlohmann::json());
  if (!value.is_string()) return otherwise;
  return value == "fp32" ? DType::float32 : value == "bf16" ? DType::bfloat16 : DType::float16;
}

}  // namespace

ShardPlan zero_plan(const Job& job) {
  int64_t stage = integer(job, "stage");
  ShardPlan plan;
  plan.shards = static_cast<int>(integer_or(job, "mics_shard_size", job.world_size));
  plan.replicas = job.world_size / plan.shards;
  plan.parameter = job.precision.compute;
  plan.reduce = wire_dtype(job, plan.parameter);
  plan.reduce_every_micro_batch = stage >= 2;
  plan.predivide = job.options.at("gradient_predivide_factor");
  // Sums of several micro-batches, and sums that are multiplied (predivide), have at least the precision of the
  // masters.
  DType wide = wider(plan.reduce, job.precision.parameter);
  bool several = job.most_micro_batches() > 1;
  plan.accumulate = several && !plan.reduce_every_micro_batch ? wide : plan.reduce;
  plan.gradient = (several && plan.reduce_every_micro_batch) || plan.predivide != 1.0 ? wide : plan.reduce;
  plan.reduce_by_all_reduce = !is_on(job, "reduce_scatter");
  plan.gather_by_broadcast = !is_on(job, "allgather_partitions");
  plan.overlap = job.accelerator.streams && is_on(job, "overlap_comm");
  plan.prefetches = job.accelerator.streams;
  plan.update_elements = integer_or(job, "sub_group_size", 1'000'000'000);
  if (stage == 3)
    shard_parameters(job, plan);
  else
    plan.units = buckets(job, all_slots(job));
  offload(job, plan);
  plan.loss_scale = zero_loss_scale(job);
  return plan;
}

LossScalePolicy zero_loss_scale(const Job& job) {
  LossScalePolicy policy;
  double fixed = job.options.at("loss_scale");
  policy.dynamic = fixed == 0.0;
  policy.initial = policy.dynamic ? std::exp2(job.options.at("initial_scale_power").get<double>()) : fixed;
  policy.window = integer(job, "loss_scale_window");
  policy.hysteresis = integer(job, "hysteresis");
  policy.consecutive_hysteresis = is_on(job, "consecutive_hysteresis");
  policy.minimum = job.options.at("min_loss_scale");
  return policy;
}

}  // namespace runner
