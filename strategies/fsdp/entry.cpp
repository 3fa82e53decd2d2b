#include "strategies/fsdp/entry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runner/base/glob.hpp"
#include "runner/base/layer_class.hpp"
#include "runner/base/text.hpp"
#include "strategies/program/program.hpp"

namespace runner {

namespace {

constexpr std::pair<const char*, DType> dtypes[] = {
    {"float32", DType::float32}, {"fp32", DType::float32},    {"32", DType::float32},   {"bfloat16", DType::bfloat16},
    {"bf16", DType::bfloat16},   {"float16", DType::float16}, {"fp16", DType::float16}, {"16", DType::float16}};

/// Converts "torch.float16" to "float16".
std::string without_torch(const std::string& dtype) {
  const std::string prefix = "torch.";
  return dtype.starts_with(prefix) ? dtype.substr(prefix.size()) : dtype;
}

/// The dtype of `part` in mixed_precision, which is a table of parts, or one dtype for all parts.
std::optional<DType> mixed_dtype(const Job& job, const char* part) {
  auto mixed = job.options.value("mixed_precision", nlohmann::json());
  auto value = mixed.is_object() ? mixed.value(part, nlohmann::json()) : mixed;
  for (const auto& [name, dtype] : dtypes)
    if (value.is_string() && without_torch(value.get<std::string>()) == name) return dtype;
  return std::nullopt;
}

/// The value of auto_wrap_policy: "block", "size", "none", or "names" with patterns of block names.
struct WrapPolicy {
  std::string word;
  std::vector<std::string> names = {};
};

/// Also accepts the names of PyTorch's policies, and classes of layers.
WrapPolicy wrap_policy(const Job& job) {
  auto policy = job.options.at("auto_wrap_policy");
  if (policy.is_string()) {
    auto word = policy.get<std::string>();
    bool blocks = word == "transformer_auto_wrap_policy" || word == "ModuleWrapPolicy" || names_layer_class(word);
    return {blocks ? "block" : word == "size_based_auto_wrap_policy" ? "size" : word};
  }
  auto names = policy.get<std::vector<std::string>>();
  if (std::all_of(names.begin(), names.end(), names_layer_class)) return {"block"};
  return {"names", names};
}

int64_t hybrid_group(const Job& job) {
  auto group = job.options.value("hybrid_group_size", nlohmann::json());
  return group.is_number() ? group.get<int64_t>() : job.local_size;
}

const char* no_wrapping_needed = "no effect: the original parameters, with their names and groups, are always used";
const char* no_sync_needed =
    "no effect: initial values depend only on the seed and the parameter's name, so all ranks start with equal values "
    "without a broadcast";

std::vector<OptionSpec> fsdp_options() {
  using Type = OptionSpec::Type;
  return {
      {.name = "sharding_strategy",
       .type = Type::choice,
       .default_value = "FULL_SHARD",
       .choices = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"},
       .help = "What is sharded. FULL_SHARD: parameters, gradients and optimizer state; SHARD_GRAD_OP: gradients and "
               "optimizer state; NO_SHARD: nothing; HYBRID_SHARD: as FULL_SHARD, within groups of ranks."},
      {.name = "hybrid_group_size",
       .type = Type::integer,
       .minimum = 1,
       .help = "HYBRID_SHARD: number of ranks in a group; default: the ranks of a node."},
      {.name = "auto_wrap_policy",
       .type = Type::names,
       .default_value = "block",
       .help = "How blocks are combined to units, which are gathered as one: \"block\", \"size\", \"none\", or a list "
               "of names of layers (\"blocks.0\") or of their halves (\"blocks.0.mlp\"). Classes of layers and "
               "transformer_auto_wrap_policy mean \"block\"."},
      {.name = "min_num_params",
       .type = Type::integer,
       .default_value = 100'000'000,
       .minimum = 1,
       .help = "auto_wrap_policy = \"size\": minimum number of parameters in a unit."},
      {.name = "backward_prefetch",
       .type = Type::choice,
       .default_value = "BACKWARD_PRE",
       .choices = {"BACKWARD_PRE", "BACKWARD_POST", "NONE"},
       .help = "When the gather of the next unit starts in backward: before or after this unit's gradients are "
               "computed, or not in advance."},
      {.name = "forward_prefetch",
       .type = Type::boolean,
       .default_value = false,
       .help = "Start the next unit's gather before this unit's forward.",
       .note = "always on with CUDA: the gather of the next unit overlaps with this unit's forward. Always off on CPU, "
               "where gathers do not overlap with computation"},
      {.name = "limit_all_gathers",
       .type = Type::boolean,
       .default_value = true,
       .help = "At most two units are gathered at the same time, to bound memory.",
       .note = "no effect: at most one unit is gathered in advance"},
      {.name = "cpu_offload",
       .type = Type::boolean,
       .default_value = false,
       .help = "Keep shards and optimizer state in host memory."},
      {.name = "mixed_precision",
       .type = Type::table,
       .help = "{ param_dtype, reduce_dtype, buffer_dtype }, or one dtype for all. Default: param_dtype is the dtype "
               "of computation in `precision`, reduce_dtype the dtype of its masters (float32 in mixed precision)."},
      {.name = "state_dict_type",
       .type = Type::choice,
       .default_value = "sharded",
       .choices = {"sharded", "full"},
       .help = "Checkpoint files. sharded: each rank writes its shards; full: rank 0 writes everything. Both can be "
               "loaded with any strategy and number of ranks.",
       .spellings = {{"sharded_state_dict", "sharded"}, {"full_state_dict", "full"}}},
      {.name = "reduce_every_micro_batch",
       .type = Type::boolean,
       .help = "With accumulation. true: reduce after each micro-batch, so that accumulated gradients are sharded (as "
               "with Lightning's Trainer and PyTorch without no_sync); false: reduce once a step, and keep unsharded "
               "gradients on every rank. Default: true, but false for NO_SHARD."},
      {.name = "use_orig_params",
       .type = Type::boolean,
       .default_value = true,
       .help = "Accepted for compatibility.",
       .note = no_wrapping_needed},
      {.name = "sync_module_states",
       .type = Type::boolean,
       .default_value = false,
       .help = "Accepted for compatibility.",
       .note = no_sync_needed},
  };
}

/// The cost of accumulation, and of the other choice for reduce_every_micro_batch.
std::optional<std::string> note_on_accumulation(const Job& job, const ShardPlan& plan) {
  if (job.accumulation == 1 || plan.shards == 1) return std::nullopt;
  auto whole = format_bytes(job.model->parameter_count() * bytes_of(wider(plan.reduce, job.precision.parameter)));
  if (plan.reduce_every_micro_batch)
    return fmt::format(
        "gradients are reduced after each of {} micro-batches, so that they stay sharded; reduce_every_micro_batch = "
        "false reduces once a step and keeps {} of unsharded gradients on every rank",
        job.accumulation, whole);
  return fmt::format(
      "gradients of {} micro-batches are reduced once a step, so every rank keeps {} of unsharded gradients in the "
      "meantime; reduce_every_micro_batch = true keeps them sharded",
      job.accumulation, whole);
}

std::vector<std::string> fsdp_notes(const Job& job) {
  ShardPlan plan = fsdp_plan(job);
  std::vector<std::string> notes;
  if (job.options.at("cpu_offload") == true && !job.accelerator.own_memory)
    notes.push_back("`cpu_offload`: no effect on CPU, where shards are always in host memory");
  if (auto note = note_on_accumulation(job, plan)) notes.push_back(*note);
  auto mixed = job.options.value("mixed_precision", nlohmann::json());
  if (mixed.is_object() && mixed.contains("buffer_dtype"))
    notes.push_back(
        "`mixed_precision.buffer_dtype`: no effect: a model's buffers are tables in the dtype in which blocks compute");
  if (job.world_size == 1 && plan.optimizer == Tier::device)
    notes.push_back("fsdp on one rank has nothing to shard: `single` does the same");
  return notes;
}

std::string in_quotes(const std::string& word) { return "\"" + word + "\""; }

/// " (did you mean "x"?)", or an empty string.
std::string suggestion(const nlohmann::json& given, const std::vector<std::string>& allowed) {
  auto near = given.is_string() ? nearest(given.get<std::string>(), allowed) : std::nullopt;
  return near ? fmt::format(" (did you mean {}?)", in_quotes(*near)) : "";
}

std::optional<std::string> refuse_mixed_precision(const Job& job) {
  auto mixed = job.options.value("mixed_precision", nlohmann::json());
  if (mixed.is_null()) return std::nullopt;
  std::vector<std::string> names, parts{"param_dtype", "reduce_dtype", "buffer_dtype"};
  for (const auto& [name, dtype] : dtypes) names.push_back(name);
  auto wrong = [&](const std::string& where, const nlohmann::json& value) -> std::optional<std::string> {
    bool known = value.is_string() &&
                 std::find(names.begin(), names.end(), without_torch(value.get<std::string>())) != names.end();
    if (known) return std::nullopt;
    return fmt::format("{} cannot be {}{}; a dtype is \"float32\", \"bfloat16\" or \"float16\"", where, value.dump(),
                       suggestion(value, names));
  };
  if (!mixed.is_object()) return wrong("mixed_precision", mixed);
  for (const auto& [part, value] : mixed.items()) {
    if (std::find(parts.begin(), parts.end(), part) == parts.end())
      return fmt::format("mixed_precision has no {}{}; it has param_dtype, reduce_dtype and buffer_dtype",
                         in_quotes(part), suggestion(part, parts));
    if (auto why = wrong("mixed_precision." + part, value)) return why;
  }
  return std::nullopt;
}

std::optional<std::string> refuse_wrap_policy(const Job& job) {
  WrapPolicy policy = wrap_policy(job);
  const std::vector<std::string> words{"block", "size", "none"};
  const auto& blocks = job.model->blocks;
  std::string names = fmt::format("blocks are {} to {}", in_quotes(blocks.front().name), in_quotes(blocks.back().name));
  if (policy.word != "names") {
    if (std::find(words.begin(), words.end(), policy.word) != words.end()) return std::nullopt;
    return fmt::format(
        "auto_wrap_policy cannot be {}{}; it is \"block\", \"size\", \"none\", classes of layers such as "
        "\"TransformerEncoderLayer\", or a list of block names: {}",
        in_quotes(policy.word), suggestion(policy.word, words), names);
  }
  for (const auto& pattern : policy.names)
    if (std::none_of(blocks.begin(), blocks.end(), [&](const auto& block) {
          return glob_matches(pattern, block.name) || glob_matches(pattern, block.layer_name());
        }))
      return fmt::format("auto_wrap_policy: no block is called {}; {}", in_quotes(pattern), names);
  return std::nullopt;
}

std::optional<std::string> refuse_fsdp(const Job& job) {
  if (job.options.at("sharding_strategy") == "HYBRID_SHARD")
    if (auto why = refuse_groups(job, "HYBRID_SHARD", "hybrid_group_size", hybrid_group(job))) return why;
  if (auto why = refuse_mixed_precision(job)) return why;
  return refuse_wrap_policy(job);
}

}  // namespace

ShardPlan fsdp_plan(const Job& job) {
  const auto& options = job.options;
  ShardPlan plan;
  std::string sharding = options.at("sharding_strategy");
  plan.shards = sharding == "NO_SHARD"       ? 1
                : sharding == "HYBRID_SHARD" ? static_cast<int>(hybrid_group(job))
                                             : job.world_size;
  plan.replicas = job.world_size / plan.shards;
  auto each = options.value("reduce_every_micro_batch", nlohmann::json());
  plan.reduce_every_micro_batch = each.is_boolean() ? each.get<bool>() : plan.shards > 1;
  plan.parameter = mixed_dtype(job, "param_dtype").value_or(job.precision.compute);
  plan.reduce = mixed_dtype(job, "reduce_dtype").value_or(job.precision.parameter);
  plan.gradient = job.precision.parameter;
  bool several = job.most_micro_batches() > 1 && !plan.reduce_every_micro_batch;
  plan.accumulate = several ? wider(plan.reduce, job.precision.parameter) : plan.reduce;
  plan.overlap = job.accelerator.streams;
  std::string prefetch = options.at("backward_prefetch");
  plan.backward_prefetch = prefetch == "BACKWARD_PRE"    ? ShardPlan::Prefetch::before
                           : prefetch == "BACKWARD_POST" ? ShardPlan::Prefetch::after
                                                         : ShardPlan::Prefetch::none;
  plan.forward_prefetch = true;
  plan.prefetches = job.accelerator.streams;
  plan.separate_host = job.accelerator.own_memory;
  plan.pin_memory = job.accelerator.pinned;
  Tier tier = options.at("cpu_offload") == true && job.accelerator.own_memory ? Tier::host : Tier::device;
  plan.optimizer = tier;
  plan.saves_whole = options.at("state_dict_type") == "full";

  WrapPolicy policy = wrap_policy(job);
  bool reshard = sharding == "FULL_SHARD" || sharding == "HYBRID_SHARD";
  for (auto& unit : make_units(*job.model, policy.word, options.at("min_num_params"), policy.names)) {
    bool used_at_once = unit.blocks.back() + 1 == job.model->blocks.size();  // backward directly follows its forward
    plan.units.push_back({.slots = unit.slots,
                          .frozen = unit.frozen,
                          .blocks = unit.blocks,
                          .first_needed_in_backward = unit.first_needed_in_backward,
                          .keep_after_forward = !reshard || used_at_once,
                          .shards = tier});
  }
  return plan;
}

Entry fsdp_entry() {
  Entry entry;
  entry.name = "fsdp";
  entry.summary =
      "Parameters, gradients and optimizer state are sharded over ranks; each unit is gathered while it is used.";
  const std::string native = "an old name of the native implementation; it means the same";
  const std::string fairscale =
      "FairScale's FSDP became PyTorch's, and the sharding is the same; the defaults differ: a unit is a transformer "
      "block (not 1e8 parameters), and gradients are reduced in the precision of the parameters' masters";
  entry.aliases = {{"fsdp_cpu_offload", {{"cpu_offload", true}}},
                   {"fsdp_native", nlohmann::json::object(), native},
                   {"fsdp_native_full_shard_offload", {{"cpu_offload", true}}, native},
                   {"FSDPStrategy"},
                   {"DDPFullyShardedNativeStrategy", nlohmann::json::object(), native},
                   {"ddp_fully_sharded", nlohmann::json::object(), fairscale},
                   {"DDPFullyShardedStrategy", nlohmann::json::object(), fairscale}};
  entry.options = fsdp_options();
  need(entry.options, {"hybrid_group_size"}, only_with_option("sharding_strategy", "HYBRID_SHARD"));
  need(entry.options, {"min_num_params"},
       {"auto_wrap_policy = \"size\"", [](const Job& job) { return wrap_policy(job).word == "size"; }});
  need(entry.options, {"backward_prefetch"}, only_with_streams());  // the note of forward_prefetch has its condition
  need(entry.options, {"reduce_every_micro_batch"},
       {"several micro-batches a step", [](const Job& job) { return job.most_micro_batches() > 1; }});
  entry.refuse = refuse_fsdp;
  entry.notes = fsdp_notes;
  entry.plan = fsdp_plan;
  return entry;
}

}  // namespace runner
