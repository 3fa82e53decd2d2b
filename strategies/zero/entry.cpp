#include "strategies/zero/entry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runner/base/round_up.hpp"
#include "strategies/program/program.hpp"

namespace runner {

namespace {

using Type = OptionSpec::Type;

constexpr double largest_scale = 0x1p126;
constexpr int in_flight_most = 256;  ///< maximum number of I/O requests in flight
constexpr int most_buffers = 65'536;

std::vector<OptionSpec> stage_options() {
  return {
      {.name = "stage",
       .type = Type::integer,
       .default_value = 2,
       .minimum = 1,
       .help = "What is sharded. 1: optimizer state and fp32 masters; 2: also gradients; 3: also parameters.",
       .maximum = 3},
      {.name = "reduce_bucket_size",
       .type = Type::integer,
       .minimum = 1,
       .help = "Elements of gradients that are reduced together, in whole blocks: a larger block is one bucket. "
               "Default: the largest block, and on CUDA at least a "
               "million per rank. In stage 3 each block is a bucket, and this option applies only to persistent "
               "parameters."},
      {.name = "allgather_bucket_size",
       .type = Type::integer,
       .minimum = 1,
       .help = "Elements of updated parameters that are gathered together. The same buckets are reduced and gathered, "
               "so the smaller of the two sizes is used for both."},
      {.name = "overlap_comm",
       .type = Type::boolean,
       .default_value = true,
       .help = "Overlap reductions with backward, and in stage 3 gathers with computation. Not possible on CPU."},
      {.name = "contiguous_gradients",
       .type = Type::boolean,
       .default_value = true,
       .help = "Copy each gradient into its bucket when it is computed.",
       .note = "no effect: gradients are always contiguous in runner"},
      {.name = "round_robin_gradients",
       .type = Type::boolean,
       .default_value = false,
       .help = "Distribute the copying of gradients over ranks.",
       .note = "no effect: every rank has an equal part of every bucket, so all ranks copy at the same time"},
      {.name = "reduce_scatter",
       .type = Type::boolean,
       .default_value = true,
       .help = "true: reduce-scatter, each rank gets the sums of its part. false: all-reduce, every rank gets all "
               "sums; faster on some networks."},
      {.name = "allgather_partitions",
       .type = Type::boolean,
       .default_value = true,
       .help = "true: updated parameters are all-gathered; false: each rank broadcasts its part."},
  };
}

std::vector<OptionSpec> stage3_options() {
  return {
      {.name = "stage3_param_persistence_threshold",
       .type = Type::integer,
       .default_value = 100'000,
       .minimum = 0,
       .help = "Stage 3: parameters with fewer elements stay unsharded on every rank (persistent parameters)."},
      {.name = "stage3_model_persistence_threshold",
       .type = Type::integer,
       .minimum = 0,
       .help = "Stage 3: maximum number of elements of persistent parameters."},
      {.name = "stage3_prefetch_bucket_size",
       .type = Type::integer,
       .default_value = 50'000'000,
       .minimum = 0,
       .help = "Stage 3: maximum number of elements that are gathered in advance (at least the next block); 0: none."},
      {.name = "stage3_max_live_parameters",
       .type = Type::integer,
       .default_value = 1'000'000'000,
       .minimum = 0,
       .help = "Stage 3: maximum number of elements that stay gathered between forward and backward."},
      {.name = "stage3_max_reuse_distance",
       .type = Type::integer,
       .default_value = 1'000'000'000,
       .minimum = 0,
       .help = "Stage 3: a block stays gathered after forward if at most this number of elements is used before its "
               "backward; 0: only the last block stays gathered."},
      {.name = "stage3_gather_16bit_weights_on_model_save",
       .type = Type::boolean,
       .default_value = false,
       .help = "Accepted for compatibility.",
       .note =
           "no effect: checkpoints contain every weight, and `runner export` writes them as one Hugging Face folder"},
      {.name = "mics_shard_size",
       .type = Type::integer,
       .minimum = 1,
       .help = "Shard within groups of this number of ranks (MiCS). Gradients are also all-reduced between groups."},
  };
}

std::vector<OptionSpec> gradient_options() {
  return {
      {.name = "sub_group_size",
       .type = Type::integer,
       .minimum = 1,
       .help = "Elements that the update processes at a time, if it streams state from NVMe (default 2^20) or casts "
               "gradients (default 10^9).",
       .maximum = 1e12},
      {.name = "communication_data_type",
       .type = Type::choice,
       .choices = {"fp32", "bf16", "fp16"},
       .help = "Dtype in which gradients are sent and summed. Default: the dtype of computation."},
      {.name = "prescale_gradients",
       .type = Type::boolean,
       .default_value = false,
       .help = "Divide gradients before their sum instead of after.",
       .note =
           "no effect: the loss is divided by the tokens of the global batch, so gradients are only summed over ranks"},
      {.name = "gradient_predivide_factor",
       .type = Type::number,
       .default_value = 1.0,
       .help = "Gradients are divided by this before they are summed and multiplied by it after (avoids overflow in "
               "fp16)."},
  };
}

std::vector<OptionSpec> offload_options() {
  return {
      {.name = "offload_optimizer",
       .type = Type::boolean,
       .default_value = false,
       .help = "Keep optimizer state and masters outside device memory; the CPU runs the update."},
      {.name = "offload_optimizer_device",
       .type = Type::choice,
       .default_value = "cpu",
       .choices = {"cpu", "nvme"},
       .help = "Where offload_optimizer keeps them."},
      {.name = "offload_parameters",
       .type = Type::boolean,
       .default_value = false,
       .help = "Stage 3: keep the shards of the parameters outside device memory; gathers copy them to the device."},
      {.name = "offload_params_device",
       .type = Type::choice,
       .default_value = "cpu",
       .choices = {"cpu", "nvme"},
       .help = "Where offload_parameters keeps them."},
      {.name = "remote_device",
       .type = Type::choice,
       .choices = {"cpu", "nvme"},
       .help = "Device on which the model is created.",
       .note = "no effect: each rank creates only its shards, in the memory where they are kept"},
      {.name = "nvme_path",
       .type = Type::text,
       .help =
           "Folder on the NVMe disk. A relative path is relative to the file that contains it. The file of each rank "
           "has no name, so nothing remains after a crash."},
      {.name = "pin_memory",
       .type = Type::boolean,
       .default_value = true,
       .help = "Pin host memory for offload from a CUDA device."},
      {.name = "optimizer_buffer_count",
       .type = Type::integer,
       .default_value = 4,
       .minimum = 2,
       .help = "Tiles (sub_group_size elements each) in memory when state on NVMe is updated: read in advance, in use, "
               "or being written.",
       .maximum = most_buffers},
      {.name = "params_buffer_count",
       .type = Type::integer,
       .default_value = 5,
       .minimum = 1,
       .help = "Parameters on NVMe: number of blocks whose shards are in memory, in use or read in advance.",
       .maximum = most_buffers},
      {.name = "params_buffer_size",
       .type = Type::integer,
       .default_value = 100'000'000,
       .minimum = 1,
       .help = "Parameters on NVMe: maximum number of elements in a block's shard."},
      {.name = "max_in_cpu",
       .type = Type::integer,
       .default_value = 1'000'000'000,
       .minimum = 0,
       .help =
           "Parameters on NVMe: elements of each rank's shards that stay in host memory. These are the first blocks."},
      {.name = "block_size",
       .type = Type::integer,
       .default_value = 1 << 20,
       .minimum = 4096,
       .help = "NVMe: bytes of one read or write, a multiple of 4096.",
       .maximum = 1 << 30},
      {.name = "queue_depth",
       .type = Type::integer,
       .default_value = 8,
       .minimum = 1,
       .help = "NVMe: reads or writes in flight for each of thread_count threads.",
       .maximum = in_flight_most},
      {.name = "thread_count",
       .type = Type::integer,
       .default_value = 1,
       .minimum = 1,
       .help = "NVMe: thread_count x queue_depth reads or writes are in flight.",
       .maximum = in_flight_most},
      {.name = "single_submit",
       .type = Type::boolean,
       .default_value = false,
       .help = "Submit reads and writes one by one.",
       .note = "no effect: every read or write is a separate call, on a thread that waits for it"},
      {.name = "overlap_events",
       .type = Type::boolean,
       .default_value = true,
       .help = "Submit reads and writes while others complete.",
       .note = "no effect: reads and writes are always submitted while others complete"},
  };
}

std::vector<OptionSpec> configuration_options() {
  return {
      {.name = "config",
       .type = Type::table,
       .help =
           "DeepSpeed's configuration: a JSON file, relative to the recipe, or a table. It is converted to options and "
           "to keys of other sections. Keys of the recipe must not contradict it."},
      {.name = "gradient_accumulation_steps",
       .type = Type::integer,
       .minimum = 1,
       .help = "Number of micro-batches in a step. train.global_batch_size must be micro-batch x this number x ranks."},
  };
}

std::vector<OptionSpec> loss_scale_options() {
  return {
      {.name = "loss_scale",
       .type = Type::number,
       .default_value = 0.0,
       .minimum = 0,
       .help = "16-mixed: a fixed loss scale; 0: dynamic."},
      {.name = "initial_scale_power",
       .type = Type::number,
       .default_value = 16,
       .minimum = 0,
       .help = "16-mixed: the dynamic scale starts at 2 to this power."},
      {.name = "loss_scale_window",
       .type = Type::integer,
       .default_value = 1000,
       .minimum = 1,
       .help = "16-mixed: steps without overflow before the scale doubles."},
      {.name = "hysteresis",
       .type = Type::integer,
       .default_value = 2,
       .minimum = 1,
       .help = "16-mixed: number of overflows since the last doubling before the scale is halved."},
      {.name = "consecutive_hysteresis",
       .type = Type::boolean,
       .default_value = false,
       .help = "16-mixed: a step without overflow resets the count of overflows."},
      {.name = "min_loss_scale",
       .type = Type::number,
       .default_value = 1.0,
       .minimum = 0,
       .help = "16-mixed: an overflow at this scale ends the run."},
  };
}

std::vector<OptionSpec> zero_options() {
  auto options = stage_options();
  for (auto& more :
       {stage3_options(), gradient_options(), offload_options(), configuration_options(), loss_scale_options()})
    options.insert(options.end(), more.begin(), more.end());
  return options;
}

/// A configuration may set all three numbers of train_batch_size = micro-batch x accumulation x ranks. Whether the
/// equation is true depends on the number of ranks.
std::optional<std::string> refuse_batch(const Job& job) {
  auto steps = job.options.value("gradient_accumulation_steps", nlohmann::json());
  if (!steps.is_number() || steps.get<int64_t>() == job.accumulation) return std::nullopt;
  int64_t micro = job.micro_batch_size, factor = steps.get<int64_t>(), ranks = job.world_size;
  int64_t global = micro * job.accumulation * ranks;
  std::string works =
      fmt::format("train_batch_size {} or gradient_accumulation_steps {}", micro * factor * ranks, job.accumulation);
  if (global % (micro * factor) == 0) works += fmt::format(" or {} ranks", global / (micro * factor));
  return fmt::format("train_batch_size {} is not micro-batch {} x accumulation {} x {} ranks; use {}", global, micro,
                     factor, ranks, works);
}

std::optional<std::string> refuse_loss_scale(const Job& job) {
  LossScalePolicy scale = zero_loss_scale(job);
  if (!(scale.initial <= largest_scale) || !(scale.minimum <= largest_scale))
    return fmt::format("a loss scale must not be above 2^{}", std::log2(largest_scale));
  if (scale.dynamic && scale.minimum > scale.initial)
    return fmt::format("min_loss_scale = {} is above the initial scale of {}", scale.minimum, scale.initial);
  return std::nullopt;
}

int64_t stage_of(const Job& job) { return job.options.at("stage"); }
/// In stages 1 and 2 every rank keeps all parameters, so there is no shard of them to offload.
bool chosen(const Job& job, const std::string& option) {
  return job.options.at(option) == true && (option != "offload_parameters" || stage_of(job) >= 3);
}
bool optimizer_on_nvme(const Job& job) {
  return chosen(job, "offload_optimizer") && job.options.at("offload_optimizer_device") == "nvme";
}
bool parameters_on_nvme(const Job& job) {
  return chosen(job, "offload_parameters") && job.options.at("offload_params_device") == "nvme";
}
std::optional<std::string> refuse_nvme(const Job& job) {
  bool optimizer = optimizer_on_nvme(job), parameters = parameters_on_nvme(job);
  if (!optimizer && !parameters) return std::nullopt;
  if (!job.options.value("nvme_path", nlohmann::json()).is_string())
    return "offload to NVMe needs nvme_path = \"FOLDER\", a folder on the NVMe disk";
  if (optimizer && (job.optimizer_states != 2 || job.precision.parameter != DType::float32))
    return "optimizer state on NVMe needs optimizer.name = \"adamw\" or \"adam\", and a precision with fp32 masters "
           "(32-true, bf16-mixed, 16-mixed)";
  int64_t block = job.options.at("block_size");
  if (block % 4096 != 0)
    return fmt::format("block_size = {} is not a multiple of 4096, which direct I/O requires; use {} for example",
                       block, round_up(block, 4096));
  int64_t depth = job.options.at("queue_depth"), threads = job.options.at("thread_count"), in_flight = depth * threads;
  if (in_flight > in_flight_most)
    return fmt::format("thread_count x queue_depth = {}: at most {} reads or writes can be in flight", in_flight,
                       in_flight_most);
  if (!parameters) return std::nullopt;
  ShardPlan plan = zero_plan(job);
  int64_t room = job.options.at("params_buffer_size");
  for (const auto& unit : plan.units) {
    if (unit.shards != Tier::nvme) continue;
    int64_t shard = make_flat_layout(*job.model, unit.slots, plan.shards).shard;
    if (shard > room)
      return fmt::format("block {} has {} elements on each rank, more than params_buffer_size = {}",
                         job.model->blocks[unit.blocks.front()].name, shard, room);
  }
  return std::nullopt;
}

std::optional<std::string> refuse(const Job& job) {
  if (auto batch = refuse_batch(job)) return batch;
  if (auto group = job.options.value("mics_shard_size", nlohmann::json()); group.is_number())
    if (auto why = refuse_groups(job, "MiCS", "mics_shard_size", group.get<int64_t>())) return why;
  double divisor = job.options.at("gradient_predivide_factor");
  if (!(divisor > 0) || !std::isfinite(divisor)) return "gradient_predivide_factor must be a number above 0";
  if (auto why = refuse_nvme(job)) return why;
  return refuse_loss_scale(job);
}

void note_offload(const Job& job, std::vector<std::string>& notes) {
  bool parameters = parameters_on_nvme(job), used = parameters || optimizer_on_nvme(job);
  for (auto [option, nvme] :
       {std::pair{"offload_optimizer", optimizer_on_nvme(job)}, std::pair{"offload_parameters", parameters}})
    if (chosen(job, option) && !job.accelerator.own_memory && !nvme)
      notes.push_back(fmt::format("`{}`: no effect on CPU, which has no separate device memory", option));
  if (job.options.at("offload_parameters") == true && stage_of(job) < 3)
    notes.push_back(fmt::format(
        "`offload_parameters`: no effect in stage {}, where every rank keeps all parameters; DeepSpeed also "
        "offloads parameters only in stage 3",
        stage_of(job)));
  if (!used && job.options.value("nvme_path", nlohmann::json()).is_string())
    notes.push_back(
        "`nvme_path`: nothing is offloaded to NVMe; to offload optimizer state, set offload_optimizer = true and "
        "offload_optimizer_device = \"nvme\"");
  if (!parameters) return;
  ShardPlan plan = zero_plan(job);
  bool any =
      std::any_of(plan.units.begin(), plan.units.end(), [](const auto& unit) { return unit.shards == Tier::nvme; });
  if (!any)
    notes.push_back(
        fmt::format("`offload_params_device`: all shards stay in host memory, because max_in_cpu = {}; max_in_cpu = 0 "
                    "puts them on NVMe",
                    job.options.at("max_in_cpu").get<int64_t>()));
}

std::vector<std::string> notes(const Job& job) {
  std::vector<std::string> notes;
  int64_t stage = stage_of(job);
  if (stage >= 2 && job.accumulation > 1)
    notes.push_back(fmt::format(
        "ZeRO stage {} keeps gradients sharded, so they are reduced after each of {} micro-batches; stage 1 reduces "
        "once a step",
        stage, job.accumulation));
  note_offload(job, notes);
  auto reduced = job.options.value("reduce_bucket_size", nlohmann::json()),
       gathered = job.options.value("allgather_bucket_size", nlohmann::json());
  if (reduced.is_number() && gathered.is_number() && reduced != gathered)
    notes.push_back(fmt::format(
        "the same buckets are reduced and gathered, so the smaller size is used for both: {} = {}",
        reduced < gathered ? "reduce_bucket_size" : "allgather_bucket_size", std::min(reduced, gathered).dump()));
  bool offloads =
      (job.accelerator.own_memory && (chosen(job, "offload_optimizer") || chosen(job, "offload_parameters"))) ||
      optimizer_on_nvme(job) || parameters_on_nvme(job);
  if (job.world_size == 1 && !offloads)
    notes.push_back("ZeRO on one rank has nothing to shard: `single` does the same");
  return notes;
}

/// Sets the conditions of options that need a stage, offloading, CUDA, or a loss scale.
void add_needs(std::vector<OptionSpec>& options) {
  need(options,
       {"stage3_param_persistence_threshold", "stage3_model_persistence_threshold", "stage3_prefetch_bucket_size",
        "stage3_max_live_parameters", "stage3_max_reuse_distance"},
       only_with_option("stage", 3));
  need(options, {"overlap_comm", "pin_memory"}, only_with_streams());
  need(options, {"offload_optimizer_device"}, only_with_option("offload_optimizer", true));
  need(options, {"offload_params_device"}, only_with_option("offload_parameters", true));
  need(options, {"optimizer_buffer_count"}, {"offload_optimizer_device = \"nvme\"", optimizer_on_nvme});
  need(options, {"params_buffer_count", "params_buffer_size", "max_in_cpu"},
       {"offload_params_device = \"nvme\"", parameters_on_nvme});
  need(options, {"block_size", "queue_depth", "thread_count"},
       {"offload_optimizer_device = \"nvme\" or offload_params_device = \"nvme\"",
        [](const Job& job) { return optimizer_on_nvme(job) || parameters_on_nvme(job); }});
  need(options,
       {"loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis", "consecutive_hysteresis",
        "min_loss_scale"},
       {"precision = \"16-mixed\"", [](const Job& job) { return job.precision.loss_scaling; }});
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
  entry.options = zero_options();
  add_needs(entry.options);
  entry.refuse = refuse;
  entry.notes = notes;
  entry.plan = zero_plan;
  return entry;
}

}  // namespace runner
