#include "strategies/ddp/entry.hpp"

#include <fmt/format.h>

#include "runner/base/option_table.hpp"
#include "strategies/contract/gradient_buckets.hpp"
#include "strategies/reducers/built_in.hpp"
#include "strategies/reducers/local_sgd_plan.hpp"
#include "strategies/reducers/power_sgd_plan.hpp"

namespace runner {

namespace {

std::vector<Alias> ddp_aliases() {
  const std::string native =
      "one process is started for each rank; the spawn, fork and notebook forms differ only in how Python starts its "
      "processes";
  std::vector<Alias> aliases;
  for (std::string base : {"ddp_spawn", "ddp_fork", "ddp_notebook"})
    aliases.push_back({base, nlohmann::json::object(), native});
  for (std::string base : {"ddp", "ddp_spawn", "ddp_fork", "ddp_notebook"})
    for (bool find : {false, true})
      aliases.push_back({base + "_find_unused_parameters_" + (find ? "true" : "false"),
                         {{"find_unused_parameters", find}},
                         base == "ddp" ? "" : native});
  aliases.push_back({"DDPStrategy"});
  aliases.push_back({"DDPSpawnStrategy", nlohmann::json::object(), native});
  return aliases;
}

struct DdpOptions {
  std::string ddp_comm_hook = "none", ddp_comm_wrapper = "none";
  nlohmann::json ddp_comm_hook_options = nullptr;
  std::optional<int64_t> model_averaging_period = {};
};

std::vector<std::string> hook_choices() {
  std::vector<std::string> names{"none"};
  for (const auto& hook : comm_hooks()) names.push_back(hook.name);
  return names;
}

/// The names of PyTorch's functions and of its enumeration DDPCommHookType.
std::map<std::string, std::string> hook_spellings() {
  std::map<std::string, std::string> spellings = {{"allreduce_hook", "none"}, {"allreduce", "none"}};
  for (const auto& hook : comm_hooks()) {
    for (const auto& name : hook.other_names) spellings[name] = hook.name;
    if (lower(hook.name) != hook.name) spellings[lower(hook.name)] = hook.name;
  }
  return spellings;
}

/// Members of PyTorch's enumeration that also set an option, and files without their prefix.
std::string refused_hook(const nlohmann::json& value) {
  if (!value.is_string()) return "";
  const auto given = value.get<std::string>();
  if (given.ends_with(".lua")) return fmt::format("a Lua file is written \"lua:{}\"", given);
  const auto name = lower(given.substr(given.rfind('.') + 1));
  for (const std::string of_rank_2 : {"power_sgd_rank2", "batched_power_sgd_rank2"})
    if (name == of_rank_2)
      return fmt::format("{} is \"{}\" with ddp_comm_hook_options = {{ matrix_approximation_rank = 2 }}",
                         given.substr(given.rfind('.') + 1),
                         name.starts_with("batched") ? "batched_powerSGD_hook" : "powerSGD_hook");
  return "";
}

const OptionTable<DdpOptions>& ddp_options() {
  using Type = Option::Type;
  static const auto table =
      OptionTable<DdpOptions>()
          .add(bucket_cap_option())
          .add({.name = "ddp_comm_hook",
                .type = Type::choice,
                .help = "How gradients are communicated; each hook is described below. \"lua:FILE.lua\": by a function "
                        "in Lua.",
                .choices = hook_choices(),
                .spellings = hook_spellings(),
                .takes_script = true,
                .refuses = refused_hook},
               &DdpOptions::ddp_comm_hook)
          .add({.name = "ddp_comm_hook_options",
                .type = Type::table_or_text,
                .help = "Options of the comm hook: fields of PyTorch's state, or those of a Lua file."},
               &DdpOptions::ddp_comm_hook_options)
          .add({.name = "ddp_comm_wrapper",
                .type = Type::choice,
                .help = "Casts gradients, or the factors of powerSGD_hook, to 16 bits before they are sent.",
                .choices = {"none", "fp16_compress_wrapper", "bf16_compress_wrapper"},
                .spellings = {{"fp16_compress", "fp16_compress_wrapper"}, {"bf16_compress", "bf16_compress_wrapper"}}},
               &DdpOptions::ddp_comm_wrapper)
          .add({.name = "model_averaging_period",
                .help = "With post_localSGD_hook: steps from one average of the parameters of all ranks to the next.",
                .minimum = 1},
               &DdpOptions::model_averaging_period);
  return table;
}

bool has_script(const DdpOptions& options) { return options.ddp_comm_hook.starts_with("lua:"); }

/// The dtype to which the wrapper casts, or else `plain`.
DType wire_dtype(const DdpOptions& options, DType plain) {
  if (options.ddp_comm_wrapper == "fp16_compress_wrapper") return DType::float16;
  return options.ddp_comm_wrapper == "bf16_compress_wrapper" ? DType::bfloat16 : plain;
}

/// The options of the hook in the recipe, and the option of ddp that PyTorch gives to a model averager.
nlohmann::json hook_options(const DdpOptions& options) {
  auto given = options.ddp_comm_hook_options.is_object() ? options.ddp_comm_hook_options : nlohmann::json::object();
  if (options.model_averaging_period) given["model_averaging_period"] = *options.model_averaging_period;
  return given;
}

/// "ddp", or "ddp with powerSGD_hook".
std::string label(const Job& job) {
  const auto hook = ddp_options().read(job.options).ddp_comm_hook;
  return hook == "none" ? "ddp" : "ddp with " + hook;
}

std::optional<std::string> refuse_ddp(const Job& job) {
  constexpr const char* period = "model_averaging_period";
  const auto options = ddp_options().read(job.options);
  const auto* hook = find_comm_hook(options.ddp_comm_hook);
  if (options.ddp_comm_wrapper != "none" && hook && hook->casts_to)
    return fmt::format("ddp_comm_hook = \"{}\" casts gradients already: remove `ddp_comm_wrapper`", hook->name);
  if (options.ddp_comm_wrapper != "none" && has_script(options))
    return "`ddp_comm_wrapper` is for built-in comm hooks; a Lua function casts gradients by itself";
  if (options.model_averaging_period && options.ddp_comm_hook != "post_localSGD_hook")
    return "`model_averaging_period` needs ddp_comm_hook = \"post_localSGD_hook\": replicas are equal after each step "
           "with other hooks";
  const auto& given = options.ddp_comm_hook_options;
  if (options.model_averaging_period && given.is_object() && given.contains(period))
    return "`model_averaging_period` is also in `ddp_comm_hook_options`: keep one";
  return hook && hook->refuse ? hook->refuse(job, hook_options(options)) : std::nullopt;
}

/// Whether a cast of gradients has nothing to do, because one rank sends none. Hooks that are not sums cast on one rank, too.
bool is_idle_cast(const Job& job, const DdpOptions& options) {
  return options.ddp_comm_wrapper != "none" && options.ddp_comm_hook == "none" && job.sharing_ranks() == 1;
}

/// Options of the comm hook that it does not read, because of the hook or of another option.
std::vector<std::string> notes_of_hook_options(const DdpOptions& options) {
  std::vector<std::string> notes;
  const auto given = hook_options(options);
  if (options.ddp_comm_hook == "batched_powerSGD_hook" &&
      power_sgd_options().read(given).min_compression_rate != PowerSgdOptions().min_compression_rate)
    notes.emplace_back(
        "`min_compression_rate`: no effect with batched_powerSGD_hook, which compresses every bucket as a whole");
  if (options.ddp_comm_hook == "post_localSGD_hook") {
    const auto local = local_sgd_options().read(given);
    if (local.subgroup_size && !local.post_local_gradient_allreduce)
      notes.emplace_back(
          "`subgroup_size`: no effect with post_local_gradient_allreduce = false, with which no subgroup reduces "
          "gradients");
  }
  return notes;
}

std::vector<std::string> notes_of_ddp(const Job& job) {
  const auto options = ddp_options().read(job.options);
  auto notes = notes_of_hook_options(options);
  if (is_idle_cast(job, options))
    notes.emplace_back("`ddp_comm_wrapper`: no effect on one rank, which sends no gradients");
  if (options.ddp_comm_hook == "noop_hook" && job.world_size() > 1)
    notes.emplace_back(
        "ddp_comm_hook = \"noop_hook\": ranks do not communicate gradients, so this run only measures what "
        "communication costs");
  return notes;
}

}  // namespace

ParallelPlan ddp_plan(const Job& job) {
  ParallelPlan plan = bucketed_plan(job);
  const auto options = ddp_options().read(job.options);
  const auto* hook = find_comm_hook(options.ddp_comm_hook);
  const DType wire = hook && hook->casts_to ? *hook->casts_to : wire_dtype(options, plan.reduce);
  if (hook && !hook->casts_to)
    use_reducer(plan, *hook, hook_options(options), wire);
  else if (has_script(options))
    plan.own_reducer = true;
  else if (job.sharing_ranks() > 1)  // one rank sends nothing
    plan.reduce = wire;
  return plan;
}

Entry ddp_entry() {
  Entry entry;
  entry.name = "ddp";
  entry.summary =
      "Every rank has a full copy of the model; gradients are all-reduced in buckets, overlapped with backward.";
  entry.aliases = ddp_aliases();
  entry.options = strategy_options(options_without_effect());
  for (const auto& option : ddp_options().options()) entry.options.push_back({option});
  entry.refuse = refuse_ddp;
  entry.notes = notes_of_ddp;
  entry.label = label;
  entry.plan = ddp_plan;
  return entry;
}

/// `pipeline`: the ranks that the recipe's other axes leave over are stages of consecutive blocks. The data axis is replicated as by ddp.
Entry pipeline_entry() {
  return {.name = "pipeline",
          .summary = "Each rank computes some of the blocks of the model, for one micro-batch after the other.",
          .aliases = {{"pp"}},
          .own_axis = Axis::pipeline,
          .plan = [](const Job& job) {
            Job replicated = job;
            replicated.options = with_defaults(ddp_entry().options, nlohmann::json::object());
            return ddp_plan(replicated);
          }};
}

}  // namespace runner
