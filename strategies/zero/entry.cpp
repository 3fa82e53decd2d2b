#include "strategies/zero/entry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runner/base/round_up.hpp"
#include "runner/base/text.hpp"
#include "strategies/program/program.hpp"
#include "strategies/zero/options.hpp"

namespace runner {

namespace {

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
std::string label(const Job&, const ZeroOptions& options) {
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
  entry.label = with_options(zero_option_table, label);
  entry.groups = [](int64_t, int64_t shard) { return nlohmann::json{{"mics_shard_size", shard}}; };
  entry.plan = zero_plan;
  return entry;
}

}  // namespace runner
