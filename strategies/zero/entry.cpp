#include "strategies/zero/entry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "runner/base/round_up.hpp"
#include "runner/base/text.hpp"
#include "strategies/program/program.hpp"
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

/// DeepSpeed's loss scaling for 16-mixed.
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

/// zero_plan() of a job with these options.
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

constexpr double largest_scale = 0x1p126;

/// A configuration may set all three numbers of train_batch_size = micro-batch x accumulation x ranks. Whether the
/// equation is true depends on the number of ranks.
std::optional<std::string> refuse_batch(const Job& job, const ZeroOptions& options) {
  const auto& steps = options.gradient_accumulation_steps;
  if (!steps || *steps == job.accumulation) return std::nullopt;
  int64_t micro = job.micro_batch_size, factor = *steps, ranks = job.data_ranks();
  int64_t global = micro * job.accumulation * ranks;
  std::string works =
      fmt::format("train_batch_size {} or gradient_accumulation_steps {}", micro * factor * ranks, job.accumulation);
  if (global % (micro * factor) == 0) works += fmt::format(" or {} ranks", global / (micro * factor));
  return fmt::format("train_batch_size {} is not micro-batch {} x accumulation {} x {} ranks; use {}", global, micro,
                     factor, ranks, works);
}

std::optional<std::string> refuse_loss_scale(const LossScalePolicy& scale) {
  if (!(scale.initial <= largest_scale) || !(scale.minimum <= largest_scale))
    return fmt::format("a loss scale must not be above 2^{}", std::log2(largest_scale));
  if (scale.dynamic && scale.minimum > scale.initial)
    return fmt::format("min_loss_scale = {} is above the initial scale of {}", scale.minimum, scale.initial);
  return std::nullopt;
}

std::optional<std::string> refuse_nvme(const Job& job, const ZeroOptions& options) {
  bool optimizer = options.optimizer_on_nvme(), parameters = options.parameters_on_nvme();
  if (!optimizer && !parameters) return std::nullopt;
  const auto all = job.model->parameters();
  if (!std::ranges::all_of(all, &ParameterSpec::trainable))
    return "offload to NVMe cannot be combined with model.frozen; offload to \"cpu\" can";
  if (!options.nvme_path) return "offload to NVMe needs nvme_path = \"FOLDER\", a folder on the NVMe disk";
  if (optimizer && (!job.optimizer->states_can_be_in_file() || job.precision.parameter != DType::float32))
    return fmt::format(
        "optimizer state on NVMe needs optimizer.name = \"{}\", and a precision with fp32 masters (32-true, "
        "bf16-mixed, 16-mixed)",
        join(optimizer_names([](const auto& spec) { return spec.states_can_be_in_file(); }), "\" or \""));
  if (const int64_t block = options.block_size; block % 4096 != 0)
    return fmt::format("block_size = {} is not a multiple of 4096, which direct I/O requires; use {} for example",
                       block, round_up(block, 4096));
  const int64_t in_flight = options.queue_depth * options.thread_count;
  if (in_flight > in_flight_most)
    return fmt::format("thread_count x queue_depth = {}: at most {} reads or writes can be in flight", in_flight,
                       in_flight_most);
  if (!parameters) return std::nullopt;
  ParallelPlan plan = zero_plan_of(job, options);
  for (const auto& unit : plan.units) {
    if (unit.tier != Tier::nvme) continue;
    int64_t shard = layout_of(*job.model, plan, unit).shard;
    if (shard > options.params_buffer_size)
      return fmt::format("layer {} has {} elements on each rank, more than params_buffer_size = {}",
                         job.model->blocks[unit.blocks.front()].layer_name(), shard, options.params_buffer_size);
  }
  return std::nullopt;
}

std::optional<std::string> refuse(const Job& job, const ZeroOptions& options) {
  if (auto batch = refuse_batch(job, options)) return batch;
  if (const auto& group = options.mics_shard_size)
    if (auto why = refuse_groups(job, "MiCS", "mics_shard_size", *group)) return why;
  if (auto why = refuse_nvme(job, options)) return why;
  return refuse_loss_scale(zero_loss_scale(options));
}

void note_offload(const Job& job, const ZeroOptions& options, std::vector<std::string>& notes) {
  bool parameters = options.parameters_on_nvme(), used = parameters || options.optimizer_on_nvme();
  auto without_effect = [&](const char* option) {
    notes.push_back(fmt::format("`{}`: no effect on CPU, which has no separate device memory", option));
  };
  if (!job.accelerator.own_memory) {
    if (options.offload_optimizer && !options.optimizer_on_nvme()) without_effect("offload_optimizer");
    if (options.offloads_parameters() && !parameters) without_effect("offload_parameters");
  }
  if (options.offload_parameters && options.stage < 3)
    notes.push_back(fmt::format(
        "`offload_parameters`: no effect in stage {}, where every rank keeps all parameters; DeepSpeed also "
        "offloads parameters only in stage 3",
        options.stage));
  if (!used && options.nvme_path)
    notes.push_back(
        "`nvme_path`: nothing is offloaded to NVMe; to offload optimizer state, set offload_optimizer = true and "
        "offload_optimizer_device = \"nvme\"");
  if (!parameters) return;
  ParallelPlan plan = zero_plan_of(job, options);
  if (std::ranges::all_of(plan.units, &Unit::resident))
    notes.push_back(
        "`offload_params_device`: no effect, because all parameters are below stage3_param_persistence_threshold and "
        "stay gathered");
  else if (std::ranges::none_of(plan.units, [](const auto& unit) { return unit.tier == Tier::nvme; }))
    notes.push_back(
        fmt::format("`offload_params_device`: all shards stay in host memory, because max_in_cpu = {}; max_in_cpu = 0 "
                    "puts them on NVMe",
                    options.max_in_cpu));
}

std::vector<std::string> notes(const Job& job, const ZeroOptions& options) {
  std::vector<std::string> notes;
  if (options.stage >= 2 && job.accumulation > 1)
    notes.push_back(fmt::format(
        "ZeRO stage {} keeps gradients sharded, so they are reduced after each of {} micro-batches; stage 1 reduces "
        "once a step",
        options.stage, job.accumulation));
  note_offload(job, options, notes);
  const auto &reduced = options.reduce_bucket_size, &gathered = options.allgather_bucket_size;
  if (reduced && gathered && reduced != gathered)
    notes.push_back(fmt::format(
        "the same buckets are reduced and gathered, so the smaller size is used for both: {} = {}",
        *reduced < *gathered ? "reduce_bucket_size" : "allgather_bucket_size", std::min(*reduced, *gathered)));
  bool offloads = (job.accelerator.own_memory && (options.offload_optimizer || options.offloads_parameters())) ||
                  options.optimizer_on_nvme() || options.parameters_on_nvme();
  if (job.sharing_ranks() == 1 && !offloads)
    notes.push_back("ZeRO on one data rank has nothing to shard: `single` does the same");
  return notes;
}

/// "zero stage 3, all on CPU".
std::string zero_label(const Job&, const ZeroOptions& options) {
  const bool optimizer = options.offload_optimizer, parameters = options.offloads_parameters();
  const auto text = fmt::format("zero stage {}", options.stage);
  if (!optimizer && !parameters) return text;
  const char* what = optimizer && parameters ? "all" : optimizer ? "optimizer" : "parameters";
  return fmt::format("{}, {} on {}", text, what,
                     options.optimizer_on_nvme() || options.parameters_on_nvme() ? "NVMe" : "CPU");
}

/// The options with conditions: a stage, offloading, CUDA, or a loss scale.
std::vector<StrategyOption> options_with_needs() {
  auto options = strategy_options(zero_option_table().options());
  auto only = [&](const std::vector<std::string>& names, const std::string& what, bool (*holds)(const ZeroOptions&)) {
    need(options, names, {what, with_options(zero_option_table, [holds](const Job&, const ZeroOptions& given) {
                            return holds(given);
                          })});
  };
  only({"stage3_param_persistence_threshold", "stage3_model_persistence_threshold", "stage3_prefetch_bucket_size",
        "stage3_max_live_parameters", "stage3_max_reuse_distance"},
       "stage = 3", [](const ZeroOptions& given) { return given.stage == 3; });
  need(options, {"overlap_comm"}, only_with_streams());
  need(options, {"pin_memory"}, only_with_pinned_memory());
  only({"offload_optimizer_device"}, "offload_optimizer = true",
       [](const ZeroOptions& given) { return given.offload_optimizer; });
  only({"offload_params_device"}, "offload_parameters = true",
       [](const ZeroOptions& given) { return given.offload_parameters; });
  only({"optimizer_buffer_count"}, "offload_optimizer_device = \"nvme\"",
       [](const ZeroOptions& given) { return given.optimizer_on_nvme(); });
  only({"params_buffer_count", "params_buffer_size", "max_in_cpu"}, "offload_params_device = \"nvme\"",
       [](const ZeroOptions& given) { return given.parameters_on_nvme(); });
  only({"block_size", "queue_depth", "thread_count"},
       "offload_optimizer_device = \"nvme\" or offload_params_device = \"nvme\"",
       [](const ZeroOptions& given) { return given.optimizer_on_nvme() || given.parameters_on_nvme(); });
  need(options,
       {"loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis", "consecutive_hysteresis",
        "min_loss_scale"},
       {"precision = \"16-mixed\"", [](const Job& job) { return job.precision.loss_scaling; }});
  return options;
}

}  // namespace

ParallelPlan zero_plan(const Job& job) { return with_options(zero_option_table, zero_plan_of)(job); }

Entry zero_entry() {
  Entry entry;
  entry.name = "zero";
  entry.summary =
      "DeepSpeed's ZeRO: optimizer state, gradients (stage 2) and parameters (stage 3) are sharded over ranks.";
  const std::string native = "an implementation of ZeRO in this program; the DeepSpeed library is not used";
  entry.aliases = {
      {"deepspeed", nlohmann::json::object(), native},
      {"DeepSpeedStrategy", nlohmann::json::object(), native},
      {"deepspeed_stage_1", {{"stage", 1}}, native},
      {"deepspeed_stage_2", {{"stage", 2}}, native},
      {"deepspeed_stage_3", {{"stage", 3}}, native},
      {"deepspeed_stage_1_offload", {{"stage", 1}, {"offload_optimizer", true}}, native},
      {"deepspeed_stage_2_offload", {{"stage", 2}, {"offload_optimizer", true}}, native},
      {"deepspeed_stage_3_offload", {{"stage", 3}, {"offload_optimizer", true}, {"offload_parameters", true}}, native},
      {"deepspeed_stage_3_offload_nvme",
       {{"stage", 3},
        {"offload_optimizer", true},
        {"offload_optimizer_device", "nvme"},
        {"offload_parameters", true},
        {"offload_params_device", "nvme"}},
       native}};
  const std::string sharded =
      "FairScale's OSS with ShardedDataParallel is ZeRO stage 2: the arithmetic is the same, but each rank gets an "
      "equal part of every bucket, while FairScale assigns unsplit tensors to ranks";
  const std::string spawned = sharded + "; Lightning's list calls it \"optimizer sharded\", which is stage = 1";
  for (const char* name :
       {"ddp_sharded", "ddp_sharded_find_unused_parameters_false", "DDPShardedStrategy", "fairscale"})
    entry.aliases.push_back({name, {{"stage", 2}}, sharded});
  for (const char* name :
       {"ddp_sharded_spawn", "ddp_sharded_spawn_find_unused_parameters_false", "DDPSpawnShardedStrategy"})
    entry.aliases.push_back({name, {{"stage", 2}}, spawned});
  entry.options = options_with_needs();
  entry.refuse = with_options(zero_option_table, refuse);
  entry.notes = with_options(zero_option_table, notes);
  entry.label = with_options(zero_option_table, zero_label);
  entry.groups = [](int64_t, int64_t shard) { return nlohmann::json{{"mics_shard_size", shard}}; };
  entry.plan = zero_plan;
  return entry;
}

}  // namespace runner
