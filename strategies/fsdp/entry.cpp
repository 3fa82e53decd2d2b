#include "strategies/fsdp/entry.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/glob.hpp"
#include "runner/base/layer_class.hpp"
#include "runner/base/text.hpp"
#include "strategies/contract/mixed_precision.hpp"
#include "strategies/contract/with_options.hpp"
#include "strategies/program/program.hpp"

namespace runner {

namespace {

const char* no_wrapping_needed = "no effect: the original parameters, with their names and groups, are always used";
const char* no_sync_needed =
    "no effect: initial values depend only on the seed and the parameter's name, so all ranks start with equal values "
    "without a broadcast";

struct FsdpOptions {
  std::string sharding_strategy = "FULL_SHARD", backward_prefetch = "BACKWARD_PRE", state_dict_type = "sharded";
  std::optional<int64_t> hybrid_group_size;
  nlohmann::json auto_wrap_policy = "block";  ///< a word, or a list of names
  int64_t min_num_params = 100'000'000;
  bool cpu_offload = false;
  nlohmann::json mixed_precision = nullptr;      ///< a table of parts, or one dtype for all parts
  std::optional<bool> reduce_every_micro_batch;  ///< default: unless NO_SHARD
  std::optional<double> gradient_predivide_factor;
};

/// FairScale's mixed_precision is a switch.
std::string refused_switch(const nlohmann::json& value) {
  if (!value.is_boolean()) return "";
  return value == true ? "mixed_precision = true is precision.mode = \"bf16-mixed\" or \"16-mixed\"; the option is a "
                         "table such as { reduce_dtype = \"bf16\" }"
                       : "mixed_precision = false is precision.mode = \"32-true\": remove the option";
}

/// Arguments of FairScale's FSDP.
void add_fairscale_options(OptionTable<FsdpOptions>& options) {
  using Type = Option::Type;
  options.add({.name = "gradient_predivide_factor",
               .help = "Gradients are divided by this before they are summed and multiplied by it after.",
               .minimum = 0,
               .above_minimum = true},
              &FsdpOptions::gradient_predivide_factor);
  options.add({.name = "bucket_cap_mb",
               .type = Type::number,
               .help = "Accepted for compatibility.",
               .note = "no effect: gradients of a unit are reduced together; auto_wrap_policy makes larger units"});
  options.add({.name = "verbose",
               .default_value = false,
               .help = "Accepted for compatibility.",
               .note = "no effect: `runner show` prints the plan of a run"});
}

const OptionTable<FsdpOptions>& option_table() {
  using Type = Option::Type;
  static const auto table = [] {
    OptionTable<FsdpOptions> options;
    options.add(
        {.name = "sharding_strategy",
         .type = Type::choice,
         .help = "What is sharded. FULL_SHARD: parameters, gradients and optimizer state; SHARD_GRAD_OP: gradients and "
                 "optimizer state; NO_SHARD: nothing; HYBRID_SHARD: as FULL_SHARD, within groups of ranks.",
         .choices = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"}},
        &FsdpOptions::sharding_strategy);
    options.add({.name = "hybrid_group_size",
                 .help = "HYBRID_SHARD: number of ranks in a group; default: the ranks of a node.",
                 .minimum = 1},
                &FsdpOptions::hybrid_group_size);
    options.add(
        {.name = "auto_wrap_policy",
         .type = Type::names,
         .help = "How blocks are combined into units, which are gathered as one: \"block\", \"size\", \"none\", or a "
                 "list of names of layers (\"blocks.0\") or of their halves (\"blocks.0.mlp\"). Classes of layers and "
                 "transformer_auto_wrap_policy mean \"block\"."},
        &FsdpOptions::auto_wrap_policy);
    options.add({.name = "min_num_params",
                 .help = "auto_wrap_policy = \"size\": minimum number of parameters in a unit.",
                 .minimum = 1},
                &FsdpOptions::min_num_params);
    options.add({.name = "backward_prefetch",
                 .type = Type::choice,
                 .help = "When the gather of the next unit starts in backward: before or after this unit's gradients "
                         "are computed, or not in advance.",
                 .choices = {"BACKWARD_PRE", "BACKWARD_POST", "NONE"}},
                &FsdpOptions::backward_prefetch);
    options.add({.name = "forward_prefetch",
                 .default_value = false,
                 .help = "Start the next unit's gather before this unit's forward.",
                 .note = "always on with CUDA: the gather of the next unit overlaps with this unit's forward. Always "
                         "off on CPU, where gathers do not overlap with computation"});
    options.add({.name = "limit_all_gathers",
                 .default_value = true,
                 .help = "At most two units are gathered at the same time, to bound memory.",
                 .note = "no effect: at most one unit is gathered in advance"});
    options.add({.name = "cpu_offload", .help = "Keep shards and optimizer state in host memory."},
                &FsdpOptions::cpu_offload);
    options.add(
        {.name = "mixed_precision",
         .type = Type::table_or_text,
         .help = "{ param_dtype, reduce_dtype, buffer_dtype }, or one dtype for all. Default: param_dtype is the dtype "
                 "of computation in `precision`, reduce_dtype the dtype of its masters (float32 in mixed precision).",
         .refuses = refused_switch},
        &FsdpOptions::mixed_precision);
    options.add({.name = "state_dict_type",
                 .type = Type::choice,
                 .help = "Checkpoint files. sharded: each rank writes its shards; full: rank 0 writes everything. Both "
                         "can be loaded with any strategy and number of ranks.",
                 .choices = {"sharded", "full"},
                 .spellings = {{"sharded_state_dict", "sharded"}, {"full_state_dict", "full"}}},
                &FsdpOptions::state_dict_type);
    options.add({.name = "reduce_every_micro_batch",
                 .help = "With accumulation. true: reduce after each micro-batch, so that accumulated gradients are "
                         "sharded (as with Lightning's Trainer and PyTorch without no_sync); false: reduce once a "
                         "step, and keep unsharded gradients on every rank. Default: true, but false for NO_SHARD."},
                &FsdpOptions::reduce_every_micro_batch);
    options.add({.name = "use_orig_params",
                 .default_value = true,
                 .help = "Accepted for compatibility.",
                 .note = no_wrapping_needed});
    options.add({.name = "sync_module_states",
                 .default_value = false,
                 .help = "Accepted for compatibility.",
                 .note = no_sync_needed});
    add_fairscale_options(options);
    return options;
  }();
  return table;
}

ParallelPlan plan_of(const Job& job, const FsdpOptions& options);

/// The value of auto_wrap_policy: "block", "size", "none", or "names" with patterns of block names.
struct WrapPolicy {
  std::string word;
  std::vector<std::string> names = {};
};

/// The policy of the options, which may also be the name of one of PyTorch's policies, or classes of layers.
WrapPolicy wrap_policy(const FsdpOptions& options) {
  const auto& policy = options.auto_wrap_policy;
  if (policy.is_string()) {
    auto word = policy.get<std::string>();
    bool blocks = word == "transformer_auto_wrap_policy" || word == "ModuleWrapPolicy" || names_layer_class(word);
    return {blocks ? "block" : word == "size_based_auto_wrap_policy" ? "size" : word};
  }
  auto names = policy.get<std::vector<std::string>>();
  if (std::all_of(names.begin(), names.end(), names_layer_class)) return {"block"};
  return {"names", names};
}

/// Default: the ranks of a node that share the parameters.
int64_t hybrid_group(const Job& job, const FsdpOptions& options) {
  const int of_node = job.local_size / job.mesh.joined(Axis::data, Axis::context).stride(Axis::data);
  return options.hybrid_group_size.value_or(std::clamp(of_node, 1, job.sharing_ranks()));
}

/// The cost of accumulation, and of the other choice for reduce_every_micro_batch.
std::optional<std::string> note_on_accumulation(const Job& job, const ParallelPlan& plan) {
  if (job.accumulation == 1 || plan.shards() == 1) return std::nullopt;
  auto whole = format_bytes(job.model->parameter_count() * bytes_of(wider(plan.reduce, plan.master)));
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

std::vector<std::string> fsdp_notes(const Job& job, const FsdpOptions& options) {
  ParallelPlan plan = plan_of(job, options);
  std::vector<std::string> notes;
  if (options.cpu_offload && !job.accelerator.own_memory)
    notes.push_back("`cpu_offload`: no effect on CPU, where shards are always in host memory");
  const auto& given = options.auto_wrap_policy;
  const auto classes = given.is_string() ? nlohmann::json::array({given}) : given;
  if (std::ranges::any_of(classes,
                          [](const nlohmann::json& word) { return names_layer_class(word.get<std::string>()); }) &&
      wrap_policy(options).word == "block")
    notes.push_back("`auto_wrap_policy`: a class of layers means \"block\": each block is a unit, of whichever class");
  if (auto note = job.pipeline.ranks > 1 ? std::nullopt : note_on_accumulation(job, plan)) notes.push_back(*note);
  if (const auto note = note_on_mixed_precision(options.mixed_precision)) notes.push_back(*note);
  if (job.sharing_ranks() == 1 && plan.optimizer == Tier::device)
    notes.push_back("fsdp on one data rank has nothing to shard: `single` does the same");
  return notes;
}

/// "fsdp FULL_SHARD".
std::string fsdp_label(const Job&, const FsdpOptions& options) {
  return "fsdp " + options.sharding_strategy +
         (options.reduce_every_micro_batch == false ? ", reduced once a step" : "");
}

std::optional<std::string> refuse_wrap_policy(const Job& job, const FsdpOptions& options) {
  WrapPolicy policy = wrap_policy(options);
  const std::vector<std::string> words{"block", "size", "none"};
  const auto& blocks = job.model->blocks;
  const std::string names = names_of_blocks(*job.model);
  if (policy.word != "names") {
    if (std::find(words.begin(), words.end(), policy.word) != words.end()) return std::nullopt;
    return fmt::format(
        "auto_wrap_policy cannot be {}{}; it is \"block\", \"size\", \"none\", classes of layers such as "
        "\"TransformerEncoderLayer\", or a list of names: {}",
        in_quotes(policy.word), suggestion(policy.word, words), names);
  }
  for (const auto& pattern : policy.names)
    if (std::none_of(blocks.begin(), blocks.end(), [&](const auto& block) {
          return glob_matches(pattern, block.name) || glob_matches(pattern, block.layer_name());
        }))
      return fmt::format("auto_wrap_policy: no block is called {}; names are {}", in_quotes(pattern), names);
  return std::nullopt;
}

std::optional<std::string> refuse_fsdp(const Job& job, const FsdpOptions& options) {
  if (options.sharding_strategy == "HYBRID_SHARD")
    if (auto why = refuse_groups(job, "HYBRID_SHARD", "hybrid_group_size", hybrid_group(job, options))) return why;
  if (auto why = refuse_mixed_precision(options.mixed_precision)) return why;
  return refuse_wrap_policy(job, options);
}

ParallelPlan plan_of(const Job& job, const FsdpOptions& options) {
  ParallelPlan plan;
  const auto& sharding = options.sharding_strategy;
  const int shards = sharding == "NO_SHARD"       ? 1
                     : sharding == "HYBRID_SHARD" ? static_cast<int>(hybrid_group(job, options))
                                                  : job.sharing_ranks();
  plan.mesh = mesh_with_shards(job, shards);
  plan.alignment = alignment_of(job);
  plan.reduce_every_micro_batch = options.reduce_every_micro_batch.value_or(shards > 1 && job.pipeline.ranks == 1);
  plan.master = plan.gradient = job.precision.parameter;
  plan.parameter = mixed_dtype(options.mixed_precision, "param_dtype").value_or(job.precision.compute);
  plan.reduce = mixed_dtype(options.mixed_precision, "reduce_dtype").value_or(plan.master);
  bool several = job.most_micro_batches() > 1 && !plan.reduce_every_micro_batch;
  plan.accumulate = several ? wider(plan.reduce, plan.master) : plan.reduce;
  plan.predivide = options.gradient_predivide_factor.value_or(1);
  plan.overlap = job.accelerator.streams;
  const auto& prefetch = options.backward_prefetch;
  plan.backward_prefetch = prefetch == "BACKWARD_PRE"    ? ParallelPlan::Prefetch::before
                           : prefetch == "BACKWARD_POST" ? ParallelPlan::Prefetch::after
                                                         : ParallelPlan::Prefetch::none;
  plan.forward_prefetch = true;
  plan.prefetches = job.accelerator.streams;
  plan.separate_host = job.accelerator.own_memory;
  plan.pin_memory = job.accelerator.pinned;
  Tier tier = options.cpu_offload && job.accelerator.own_memory ? Tier::host : Tier::device;
  plan.optimizer = tier;
  plan.saves_whole = options.state_dict_type == "full";

  WrapPolicy policy = wrap_policy(options);
  bool reshard = sharding == "FULL_SHARD" || sharding == "HYBRID_SHARD";
  plan.units = job.unit_of_parameter.empty() ? make_units(*job.model, policy.word, options.min_num_params, policy.names)
                                             : units_of_keys(*job.model, job.unit_of_parameter);
  for (auto& unit : plan.units) {
    bool used_at_once = unit.blocks.back() + 1 == job.model->blocks.size();  // backward directly follows its forward
    unit.keep_after_forward = !reshard || used_at_once;
    unit.tier = tier;
  }
  return plan;
}

}  // namespace

ParallelPlan fsdp_plan(const Job& job) { return with_options(option_table, plan_of)(job); }

Entry fsdp_entry() {
  Entry entry;
  entry.name = "fsdp";
  entry.summary =
      "Parameters, gradients and optimizer state are sharded over ranks; each unit is gathered while it is used.";
  const std::string native = "an old name of the native implementation; it means the same";
  const std::string fairscale =
      "FairScale's FSDP became PyTorch's, and the sharding is the same; the defaults differ: a unit is a transformer "
      "layer (not 1e8 parameters), and gradients are reduced in the precision of the parameters' masters";
  entry.aliases = {{"fsdp_cpu_offload", {{"cpu_offload", true}}},
                   {"fsdp_native", nlohmann::json::object(), native},
                   {"fsdp_native_full_shard_offload", {{"cpu_offload", true}}, native},
                   {"FSDPStrategy"},
                   {"DDPFullyShardedNativeStrategy", nlohmann::json::object(), native},
                   {"ddp_fully_sharded", nlohmann::json::object(), fairscale},
                   {"DDPFullyShardedStrategy", nlohmann::json::object(), fairscale}};
  entry.options = strategy_options(option_table().options());
  need(entry.options, {"hybrid_group_size"},
       {"sharding_strategy = \"HYBRID_SHARD\"", with_options(option_table, [](const Job&, const FsdpOptions& options) {
          return options.sharding_strategy == "HYBRID_SHARD";
        })});
  need(entry.options, {"min_num_params"},
       {"auto_wrap_policy = \"size\"", with_options(option_table, [](const Job&, const FsdpOptions& options) {
          return wrap_policy(options).word == "size";
        })});
  need(entry.options, {"backward_prefetch"}, only_with_streams());  // the note of forward_prefetch has its condition
  need(entry.options, {"reduce_every_micro_batch"},
       {"several micro-batches a step", [](const Job& job) { return job.most_micro_batches() > 1; }});
  entry.refuse = with_options(option_table, refuse_fsdp);
  entry.notes = with_options(option_table, fsdp_notes);
  entry.label = with_options(option_table, fsdp_label);
  entry.groups = [](int64_t, int64_t shard) {
    return nlohmann::json{{"sharding_strategy", "HYBRID_SHARD"}, {"hybrid_group_size", shard}};
  };
  entry.reduced_once = {{"reduce_every_micro_batch", false}};
  entry.plan = fsdp_plan;
  return entry;
}

namespace {

// `model_parallel`: Lightning's ModelParallelStrategy. The devices of a node are the tensor axis of the mesh, unless the recipe gives
// other sizes, and the data axis is sharded as by fsdp with FULL_SHARD.

struct ModelParallelOptions {
  bool save_distributed_checkpoint = true;
};

const OptionTable<ModelParallelOptions>& model_parallel_options() {
  static const auto table = OptionTable<ModelParallelOptions>().add(
      {.name = "save_distributed_checkpoint",
       .help = "true: each rank writes what it has to checkpoints; false: rank 0 writes everything. Both can be loaded "
               "with any strategy and number of ranks."},
      &ModelParallelOptions::save_distributed_checkpoint);
  return table;
}

ParallelPlan model_parallel_plan(const Job& job, const ModelParallelOptions& options) {
  Job sharded = job;
  sharded.options = {{"sharding_strategy", "FULL_SHARD"},
                     {"state_dict_type", options.save_distributed_checkpoint ? "sharded" : "full"}};
  return fsdp_plan(sharded);
}

}  // namespace

Entry model_parallel_entry() {
  return {
      .name = "model_parallel",
      .summary =
          "The ranks of a node divide the matrices of the model (tensor parallelism), and the nodes divide the data as "
          "fsdp does.",
      .aliases = {{"ModelParallelStrategy"}, {"tensor_parallel"}, {"tp"}},
      .options = strategy_options(model_parallel_options().options()),
      .own_axis = Axis::tensor,
      .plan = with_options(model_parallel_options, model_parallel_plan)};
}

}  // namespace runner
