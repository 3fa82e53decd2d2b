#include "strategies/xla/entry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <ranges>

#include "runner/base/layer_class.hpp"
#include "runner/base/text.hpp"
#include "strategies/contract/mixed_precision.hpp"
#include "strategies/contract/with_options.hpp"
#include "strategies/program/program.hpp"

namespace runner {

namespace {

using Type = Option::Type;

struct CompiledOptions {
  bool debug = false;
  std::optional<std::string> plugin, compilation_cache;
  std::string sharding_strategy = "FULL_SHARD", state_dict_type = "sharded";
  nlohmann::json auto_wrap_policy = "block";  ///< a word, or a list of classes of layers
  int64_t min_num_params = 100'000'000;
  nlohmann::json mixed_precision = nullptr;  ///< as of fsdp
};

/// "block", "size" or "none"; nullopt: another word, or names that are no classes of layers.
std::optional<std::string> wrap_word(const nlohmann::json& policy) {
  if (policy.is_string()) {
    const std::string word = policy;
    if (word == "transformer_auto_wrap_policy" || names_layer_class(word)) return "block";
    if (word == "size_based_auto_wrap_policy") return "size";
    return word == "block" || word == "size" || word == "none" ? std::optional(word) : std::nullopt;
  }
  const bool classes =
      std::ranges::all_of(policy, [](const auto& name) { return names_layer_class(name.template get<std::string>()); });
  return classes ? std::optional<std::string>("block") : std::nullopt;
}

std::string refused_policy(const nlohmann::json& policy) {
  return wrap_word(policy)
             ? ""
             : "`auto_wrap_policy` is \"block\", \"size\", \"none\", or classes of layers, which mean \"block\"";
}

void add_common(OptionTable<CompiledOptions>& options) {
  options.add({.name = "debug",
               .help = "Print a note about each program: its compile time and memory. Otherwise only about those that "
                       "take more than 2 seconds."},
              &CompiledOptions::debug);
  options.add(
      {.name = "plugin",
       .help = "Path of a PJRT plug-in, such as ./libtpu.so; a name without a folder is looked up by the system. "
               "Default: the plug-in for CPUs from scripts/setup --xla, which divides the machine into as many devices "
               "as the recipe asks for."},
      &CompiledOptions::plugin);
  options.add(
      {.name = "compilation_cache",
       .help = "Folder for compiled programs; \"none\": they are not kept. Default: the folder of cached data."},
      &CompiledOptions::compilation_cache);
  options.add({.name = "sync_module_states",
               .default_value = true,
               .help = "Accepted for compatibility.",
               .note = "no effect: initial values depend only on the seed and the parameter's name, so all devices "
                       "start with equal values without a broadcast"});
}

const OptionTable<CompiledOptions>& replicated_options() {
  static const auto table = [] {
    OptionTable<CompiledOptions> options;
    add_common(options);
    return options;
  }();
  return table;
}

const OptionTable<CompiledOptions>& sharded_options() {
  static const auto table = [] {
    OptionTable<CompiledOptions> options;
    options.add(
        {.name = "auto_wrap_policy",
         .type = Type::names,
         .help = "What is gathered as one: the parameters of a layer (\"block\"), of layers with at least "
                 "min_num_params parameters (\"size\"), or all of them (\"none\"). Classes of layers mean \"block\".",
         .refuses = refused_policy},
        &CompiledOptions::auto_wrap_policy);
    options.add({.name = "min_num_params",
                 .help = "auto_wrap_policy = \"size\": minimum number of parameters in a unit.",
                 .minimum = 1},
                &CompiledOptions::min_num_params);
    options.add({.name = "sharding_strategy",
                 .type = Type::choice,
                 .help = "Whether parameters are gathered again in backward, so that the compiler can free them after "
                         "forward (FULL_SHARD), or not (SHARD_GRAD_OP). XLA's plug-in for CPUs keeps them in any "
                         "case.",
                 .choices = {"FULL_SHARD", "SHARD_GRAD_OP"}},
                &CompiledOptions::sharding_strategy);
    options.add({.name = "mixed_precision",
                 .type = Type::table_or_text,
                 .help = "{ param_dtype, reduce_dtype, buffer_dtype }, or one dtype for all. Default: param_dtype is "
                         "the dtype of computation in `precision`, reduce_dtype that of the optimizer's parameters."},
                &CompiledOptions::mixed_precision);
    options.add({.name = "state_dict_type",
                 .type = Type::choice,
                 .help = "Checkpoint files. sharded: each rank writes its shards; full: rank 0 writes everything.",
                 .choices = {"sharded", "full"},
                 .spellings = {{"sharded_state_dict", "sharded"}, {"full_state_dict", "full"}}},
                &CompiledOptions::state_dict_type);
    options.add({.name = "sequential_save",
                 .default_value = false,
                 .help = "Accepted for compatibility.",
                 .note = "no effect: each rank writes its own shards, which need no additional memory"});
    add_common(options);
    return options;
  }();
  return table;
}

const std::vector<std::string>& optimizers_of_xla() {
  static const std::vector<std::string> names{"adamw", "adam", "sgd", "lion"};
  return names;
}

CompiledPlan compiled_plan(const CompiledOptions& options) {
  return {.reports = options.debug,
          .plugin = options.plugin.value_or(""),
          .store = options.compilation_cache.value_or("") == "none" ? "" : options.compilation_cache.value_or("")};
}

/// The program is that of one device with its own arguments, so nothing overlaps that the compiler does not let overlap.
ParallelPlan compiled(ParallelPlan plan, const Job& job, const CompiledOptions& options) {
  plan.parameter = job.precision.compute;
  plan.overlap = plan.prefetches = false;
  plan.compiled = compiled_plan(options);
  return plan;
}

ParallelPlan replicated(const Job& job, const CompiledOptions& options) {
  constexpr int64_t bucket = 25 << 20;
  return compiled(replicated_plan(job, bucket, bucket), job, options);
}

ParallelPlan sharded(const Job& job, const CompiledOptions& options) {
  ParallelPlan plan;
  plan.mesh = mesh_with_shards(job, job.sharing_ranks());
  plan.reduce_every_micro_batch = job.sharing_ranks() > 1;
  plan.master = plan.gradient = job.precision.parameter;
  plan.saves_whole = options.state_dict_type == "full";
  plan.units = job.unit_of_parameter.empty()
                   ? make_units(*job.model, *wrap_word(options.auto_wrap_policy), options.min_num_params, {})
                   : units_of_keys(*job.model, job.unit_of_parameter);
  for (auto& unit : plan.units)
    unit.keep_after_forward =
        options.sharding_strategy != "FULL_SHARD" || unit.blocks.back() + 1 == job.model->blocks.size();
  plan = compiled(std::move(plan), job, options);
  plan.parameter = mixed_dtype(options.mixed_precision, "param_dtype").value_or(job.precision.compute);
  plan.reduce = plan.accumulate = mixed_dtype(options.mixed_precision, "reduce_dtype").value_or(plan.master);
  return plan;
}

std::optional<std::string> refuse_compiled(const Job& job) {
  const auto plugin = job.options.value("plugin", nlohmann::json());
  for (const char* name : {"plugin", "compilation_cache"})
    if (job.options.value(name, nlohmann::json()) == "") return fmt::format("strategy.{} is empty: name a path", name);
  const bool searched = plugin.is_string() && plugin.get<std::string>().find('/') == std::string::npos;
  if (plugin.is_string() && !searched && !std::filesystem::exists(plugin.get<std::string>()))
    return fmt::format("strategy.plugin is {}, which does not exist", plugin.get<std::string>());
  if (job.num_nodes > 1)
    return "XLA's devices are driven by one process, on one node; use fsdp or ddp on several nodes";
  for (const Axis axis : {Axis::tensor, Axis::context, Axis::pipeline})
    if (job.mesh.size(axis) > 1)
      return fmt::format("a compiled step cannot use the axis `{}`; use `{}`, fsdp or ddp", name_of(axis),
                         axis == Axis::pipeline ? "pipeline" : "model_parallel");
  if (job.accelerator.own_memory)
    return fmt::format("XLA's devices are those of a PJRT plug-in, and not {}s of LibTorch; {}", job.accelerator.noun(),
                       job.accelerator.is_cuda() ? "set devices.accelerator = \"cpu\"" : "remove plugins.accelerator");
  const auto& known = optimizers_of_xla();
  if (std::ranges::find(known, job.optimizer->name) == known.end())
    return fmt::format("XLA's strategies have no update for optimizer.name = \"{}\"; use {}", job.optimizer->name,
                       join_or(known));
  if (job.own_loss) return "a loss that a hook computes is not compiled; use ddp or fsdp";
  if (job.adascale)
    return "optimizer.adascale measures gradients of single devices, which a compiled step does not give";
  if (!job.model->buffers.empty())
    return fmt::format("running statistics of batch norm are not compiled, and {} has them; use ddp or fsdp",
                       job.model->family);
  if (job.model->quantization)
    return "parameters in NF4 are not compiled; set fine_tune.quantization = \"none\", or use fsdp";
  if (job.model->converts()) return "plugins.precision converts parameters with LibTorch; use ddp or fsdp";
  for (const auto& field : job.model->batch)
    if (field.name == "positions")
      return "where a text begins and ends changes from batch to batch, so it is not compiled: use ddp or fsdp for "
             "texts with labels and encoders of texts; data.packing = \"none\" or \"wrapped\" avoids packed rows";
  return std::nullopt;
}

std::vector<std::string> compiled_notes(const Job& job, const CompiledOptions& options) {
  std::vector<std::string> notes;
  if (const auto note = note_on_mixed_precision(options.mixed_precision)) notes.push_back(*note);
  const auto& policy = options.auto_wrap_policy;
  if (policy != "block" && policy != "transformer_auto_wrap_policy" && wrap_word(policy) == "block")
    notes.push_back("`auto_wrap_policy`: a class of layers means \"block\": each block is a unit, of whichever class");
  const bool on_cpu = computes_on_host(options.plugin.value_or(""));
  const auto is_again = [&](size_t block) { return job.recomputes(block); };
  if (on_cpu && std::ranges::any_of(std::views::iota(size_t{0}, job.model->blocks.size()), is_again))
    notes.push_back(
        "activation_checkpointing saves no memory here: XLA's plug-in for CPUs keeps the activations that are to be "
        "computed again");
  return notes;
}

Entry entry_with(std::string name, std::string summary, const OptionTable<CompiledOptions>& (*table)(),
                 ParallelPlan (*plan)(const Job&, const CompiledOptions&)) {
  Entry entry;
  entry.name = std::move(name);
  entry.summary = std::move(summary);
  entry.options = strategy_options(table().options());
  entry.ranks_are_threads = true;
  entry.refuse = refuse_compiled;
  entry.plan = with_options(table, plan);
  entry.notes = with_options(table, compiled_notes);
#ifndef RUNNER_HAS_XLA
  entry.plan = nullptr;
  entry.unavailable =
      "not in this program, which was built without XLA; run scripts/setup --xla and build again, or use ddp or fsdp";
#endif
  return entry;
}

}  // namespace

// No plug-in says where it computes before it is open, and the planner opens none.
bool computes_on_host(const std::string& path) {
  return path.empty() || std::filesystem::path(path).filename() == "libpjrt_cpu.so";
}

std::string plugin_of_devices(const nlohmann::json& options) {
  const auto plugin = options.value("plugin", nlohmann::json());
  return plugin.is_string() && !computes_on_host(plugin) ? plugin.get<std::string>() : "";
}

Entry xla_entry() {
  auto entry =
      entry_with("xla", "A step that XLA compiles, on one or more devices of a PJRT plug-in with a replica each.",
                 replicated_options, replicated);
  const std::string process = "there each device has its own process; here it has a thread";
  entry.aliases = {{"xla_debug", {{"debug", true}}},
                   {"XLAStrategy"},
                   {"tpu_spawn", nlohmann::json::object(), process},
                   {"tpu_spawn_debug", {{"debug", true}}, process},
                   {"TPUSpawnStrategy", nlohmann::json::object(), process}};
  return entry;
}

Entry single_xla_entry() {
  auto entry = entry_with("single_xla", "A step that XLA compiles, on one device of a PJRT plug-in.",
                          replicated_options, replicated);
  entry.aliases = {{"SingleDeviceXLAStrategy"}, {"SingleXLAStrategy"}, {"single_tpu"}, {"SingleTPUStrategy"}};
  entry.distributed = false;
  entry.refuse = [](const Job& job) -> std::optional<std::string> {
    if (job.world_size() > 1)
      return fmt::format(
          "single_xla uses one device, but the recipe uses {}; use `xla` for a replica on each, or "
          "`xla_fsdp`",
          job.world_size());
    return refuse_compiled(job);
  };
  return entry;
}

Entry xla_fsdp_entry() {
  auto entry = entry_with(
      "xla_fsdp", "A step that XLA compiles, with parameters, gradients and optimizer state sharded over devices.",
      sharded_options, sharded);
  entry.aliases = {{"XLAFSDPStrategy"}, {"XlaFullyShardedDataParallel"}};
  need(entry.options, {"min_num_params"},
       {"auto_wrap_policy = \"size\"", with_options(sharded_options, [](const Job&, const CompiledOptions& options) {
          return wrap_word(options.auto_wrap_policy) == "size";
        })});
  need(entry.options, {"sharding_strategy"}, only_among_ranks());
  entry.refuse = with_options(sharded_options, [](const Job& job, const CompiledOptions& options) {
    const auto why = refuse_mixed_precision(options.mixed_precision);
    return why ? why : refuse_compiled(job);
  });
  return entry;
}

}  // namespace runner
