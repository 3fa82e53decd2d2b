#include "strategies/fsdp/entry.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace runner {

namespace {

DType dtype_named(const std::string& name, DType otherwise) {
  if (name == "float32" || name == "fp32" || name == "32") return DType::float32;
  if (name == "bfloat16" || name == "bf16") return DType::bfloat16;
  if (name == "float16" || name == "fp16" || name == "16") return DType::float16;
  return otherwise;
}

int hybrid_group(const Job& job) {
  auto group = job.options.value("hybrid_group_size", nlohmann::json());
  return group.is_number_integer() ? group.get<int>() : job.local_size;
}

const char* no_wrapping_needed =
    "nothing to do: parameters keep their own names and groups here, so original parameters are always used";
const char* no_sync_needed =
    "nothing to do: initial values depend on the seed and the parameter's name only, so all ranks start equal without "
    "a broadcast";

std::vector<OptionSpec> fsdp_options() {
  using Type = OptionSpec::Type;
  return {
      {"sharding_strategy",
       Type::choice,
       "FULL_SHARD",
       {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"},
       {},
       "What is sharded: everything; gradients and optimizer state; nothing; everything within groups of ranks."},
      {"hybrid_group_size",
       Type::integer,
       nullptr,
       {},
       1,
       "HYBRID_SHARD: ranks that share one copy; default the ranks of a node."},
      {"auto_wrap_policy",
       Type::names,
       "block",
       {},
       {},
       "Units that are gathered together: \"block\", \"size\", \"none\", or a list of block names."},
      {"min_num_params",
       Type::integer,
       100'000'000,
       {},
       1,
       "auto_wrap_policy = \"size\": parameters of a unit, at least."},
      {"backward_prefetch",
       Type::choice,
       "BACKWARD_PRE",
       {"BACKWARD_PRE", "BACKWARD_POST", "NONE"},
       {},
       "When the next unit's gather is started in backward: before or after this unit's gradients are computed."},
      {"forward_prefetch", Type::boolean, false, {}, {}, "Start the next unit's gather before this unit's forward."},
      {"limit_all_gathers",
       Type::boolean,
       true,
       {},
       {},
       "At most two units gathered at once, so that memory stays bounded.",
       "always so here: one unit is gathered ahead of the one in use, never more"},
      {"cpu_offload", Type::boolean, false, {}, {}, "Shards and the optimizer live in host memory."},
      {"mixed_precision",
       Type::table,
       nullptr,
       {},
       {},
       "{ param_dtype, reduce_dtype, buffer_dtype }, or one dtype for all. Default: param from `precision`, reduce in "
       "float32."},
      {"state_dict_type",
       Type::choice,
       "sharded",
       {"sharded", "full"},
       {},
       "Checkpoint files: each rank writes its shards, or rank 0 all of it. Both load under any strategy and number of "
       "ranks."},
      {"reduce_every_micro_batch",
       Type::boolean,
       false,
       {},
       {},
       "With accumulation: reduce after each micro-batch, which keeps gradients sharded, instead of once (the same "
       "sum, less memory, "
       "more traffic)."},
      {"use_orig_params", Type::boolean, true, {}, {}, "Accepted.", no_wrapping_needed},
      {"sync_module_states", Type::boolean, false, {}, {}, "Accepted.", no_sync_needed},
  };
}

std::vector<std::string> fsdp_notes(const Job& job) {
  ShardPlan plan = fsdp_plan(job);
  std::vector<std::string> notes;
  if (job.options.value("cpu_offload", false) && !job.cuda)
    notes.push_back("`cpu_offload`: nothing to do on CPU, where shards are in host memory anyway");
  if (plan.reduce_every_micro_batch && job.accumulation > 1)
    notes.push_back(
        fmt::format("gradients are reduced after each of {} micro-batches instead of once a step, because "
                    "reduce_every_micro_batch asks to keep them sharded",
                    job.accumulation));
  if (job.world_size == 1) notes.push_back("fsdp on one rank has nobody to share with: `single` does the same");
  return notes;
}

}  // namespace

ShardPlan fsdp_plan(const Job& job) {
  const auto& options = job.options;
  ShardPlan plan;
  std::string sharding = options.value("sharding_strategy", "FULL_SHARD");
  plan.shards = sharding == "NO_SHARD" ? 1 : sharding == "HYBRID_SHARD" ? hybrid_group(job) : job.world_size;
  plan.replicas = job.world_size / plan.shards;
  plan.reduce_every_micro_batch = options.value("reduce_every_micro_batch", false);
  plan.parameter = job.precision.compute;
  plan.reduce = plan.gradient = job.precision.parameter;
  auto mixed = options.value("mixed_precision", nlohmann::json());
  if (mixed.is_string()) mixed = {{"param_dtype", mixed}, {"reduce_dtype", mixed}};
  if (mixed.is_object()) {
    plan.parameter = dtype_named(mixed.value("param_dtype", ""), plan.parameter);
    plan.reduce = dtype_named(mixed.value("reduce_dtype", ""), plan.reduce);
  }
  std::string prefetch = options.value("backward_prefetch", "BACKWARD_PRE");
  plan.backward_prefetch = prefetch == "BACKWARD_PRE"    ? ShardPlan::Prefetch::before
                           : prefetch == "BACKWARD_POST" ? ShardPlan::Prefetch::after
                                                         : ShardPlan::Prefetch::none;
  plan.forward_prefetch = options.value("forward_prefetch", false);
  plan.separate_host = job.cuda;
  Tier tier = options.value("cpu_offload", false) && job.cuda ? Tier::host : Tier::device;
  plan.optimizer = tier;
  plan.saves_whole = options.value("state_dict_type", "sharded") == "full";

  auto policy = options.value("auto_wrap_policy", nlohmann::json("block"));
  bool named = policy.is_array();
  bool reshard = sharding == "FULL_SHARD" || sharding == "HYBRID_SHARD";
  for (auto& unit : make_units(*job.model, named ? "names" : policy.get<std::string>(),
                               options.value("min_num_params", int64_t{100'000'000}),
                               named ? policy.get<std::vector<std::string>>() : std::vector<std::string>{})) {
    bool used_at_once = unit.blocks.back() + 1 == job.model->blocks.size();  // its backward follows its forward
    plan.units.push_back(
        {unit.slots, false, unit.blocks, unit.first_needed_in_backward, !reshard || used_at_once, tier});
  }
  return plan;
}

Entry fsdp_entry() {
  Entry entry;
  entry.name = "fsdp";
  entry.summary =
      "Parameters, gradients and optimizer state sharded over ranks; each unit is gathered while it is used.";
  const std::string native = "the old name of the native implementation; the same thing here";
  entry.aliases = {{"fsdp_cpu_offload", {{"cpu_offload", true}}},
                   {"fsdp_native", nlohmann::json::object(), native},
                   {"fsdp_native_full_shard_offload", {{"cpu_offload", true}}, native}};
  entry.options = fsdp_options();
  entry.refuse = [](const Job& job) -> std::optional<std::string> {
    if (job.options.value("sharding_strategy", "") == "HYBRID_SHARD")
      return refuse_groups(job, "HYBRID_SHARD", "hybrid_group_size", hybrid_group(job));
    return std::nullopt;
  };
  entry.notes = fsdp_notes;
  entry.memory = [](const Job& job) { return sharded_memory(job, fsdp_plan(job)); };
  entry.traffic = [](const Job& job) { return sharded_traffic(job, fsdp_plan(job)); };
  return entry;
}

}  // namespace runner
