#include "runner/selection/script_strategy.hpp"

#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/selection/planner_script.hpp"
#include "strategies/contract/gradient_buckets.hpp"
#include "strategies/program/program.hpp"

namespace runner {

using nlohmann::json;

namespace {

/// The function `reduce` gets complete gradients once a step, in the dtype of the masters.
ParallelPlan reduced_by_script(ParallelPlan plan) {
  plan.own_reducer = true;
  plan.reduce_every_micro_batch = plan.reduce_by_all_reduce = false;
  plan.accumulate = plan.reduce = plan.gradient = plan.master;
  plan.predivide = plan.gradient_factor = 1;
  plan.overlap = true;
  plan.reductions_in_flight = std::ssize(plan.units);
  sort_by_slot(plan.units);
  return plan;
}

/// Why `reduce` cannot replace the sums of the plan.
std::optional<std::string> refuse_reduce(const std::string& base, const ParallelPlan& plan) {
  if (plan.own_reducer)
    return fmt::format("`reduce` cannot replace the reduction of `{}`, which is {} already: use one of them", base,
                       plan.reducer.name.empty() ? "a comm hook in Lua" : "`" + plan.reducer.name + "`");
  if (plan.optimizer != Tier::device)
    return fmt::format(
        "`reduce` leaves its sums on the device, and the optimizer of `{}` is offloaded: use it without "
        "offload",
        base);
  if (plan.shards() > 1 && plan.copies() > 1)
    return fmt::format(
        "`reduce` is one sum, and `{}` makes two here, over {} shards and over {} copies: shard over all "
        "ranks, or over none",
        base, plan.shards(), plan.copies());
  return std::nullopt;
}

/// A strategy in Lua and the built-in one that it extends.
struct ExtendedStrategy {
  std::string name;  ///< in the recipe
  std::shared_ptr<PlannerScript> script;
  Named base;

  bool has(const std::string& function) const { return script->has(function); }
  /// `fsdp`, or `deepspeed_stage_2`: as the file names it.
  std::string base_name() const { return base.alias ? base.alias->name : base.entry->name; }
  /// The job as the built-in strategy plans it: with the file's units.
  Job job(const Job& job) const {
    Job own = job;
    if (has("units")) own.unit_of_parameter = script->units(job);
    return own;
  }
  ParallelPlan base_plan(const Job& given) const { return base.entry->plan(job(given)); }
  ParallelPlan plan(const Job& job) const {
    auto made = base_plan(job);
    if (script->file.replicas_differ) made.reducer.replicas_differ = true;
    if (!has("reduce")) return made;
    made = reduced_by_script(std::move(made));
    made.reduces_in_backward = !has("after_update");
    return made;
  }

  std::optional<std::string> refuse(const Job& job) const {
    if (auto why = base.entry->refuse(job)) return why;
    const auto& file = script->file;
    if (has("units") && base.entry->own_units)
      return fmt::format("`units` cannot be combined with `{}`, which makes units of its own: use fsdp or zero as base",
                         base_name());
    for (const char* function : {"units", "reduce", "setup", "setup_module", "after_update"})
      if (job.pipeline.ranks > 1 && has(function))
        return fmt::format(
            "`{}` of {} needs all blocks of the model on each rank, so it cannot be combined with a pipeline "
            "(pipeline_parallel_size above 1): use another axis, or `{}` itself",
            function, file.shown, base_name());
    const auto made = base_plan(job);
    for (const char* function : {"reduce", "setup", "setup_module", "after_update"})
      if (made.compiled && has(function))
        return fmt::format(
            "`{}` of {} cannot be called: XLA compiles the step of `{}`, with its sums and its update: use ddp or fsdp "
            "as base",
            function, file.shown, base_name());
    if (has("reduce"))
      if (auto why = refuse_reduce(base_name(), made)) return why;
    if (file.replicas_differ && made.shards() > 1)
      return fmt::format(
          "`replicas_differ` needs a complete replica on each rank, and `{}` shards over {} ranks: use "
          "ddp as base",
          base_name(), made.shards());
    for (const Axis axis : {Axis::tensor, Axis::context, Axis::pipeline})
      if (file.replicas_differ && job.mesh.size(axis) > 1)
        return fmt::format(
            "`replicas_differ` needs a complete replica on each rank, and a {} axis divides it over {} ranks",
            name_of(axis), job.mesh.size(axis));
    return refuse_plan(job, plan(job));
  }

  std::vector<std::string> notes(const Job& job) const {
    auto list = base.entry->notes ? base.entry->notes(job) : std::vector<std::string>();
    const auto& shown = script->file.shown;
    if (has("units"))
      list.push_back(
          fmt::format("units are made by `units` of {}: options of `{}` for them have no effect", shown, base_name()));
    if (has("reduce"))
      list.push_back(fmt::format("gradients are summed by `reduce` of {}: options of `{}` for their sum have no effect",
                                 shown, base_name()));
    else if (has("after_update") && !has("traffic") && job.world_size() > 1)
      list.push_back(
          fmt::format("the predicted traffic is that of `{}`: {} has no function `traffic` for what its "
                      "`after_update` sends",
                      base_name(), shown));
    return list;
  }

  MemoryParts memory(const Job& given) const { return script->memory(job(given), plan(given)); }
  std::vector<Traffic> traffic(const Job& given) const { return script->traffic(job(given), plan(given)); }
};

/// The options of the built-in strategy, with the values of the alias and of the file as defaults, and those of the file.
std::optional<std::vector<StrategyOption>> options_of(const ExtendedStrategy& extended,
                                                      std::vector<Diagnostic>& diagnostics) {
  const size_t before = diagnostics.size();
  const auto& file = extended.script->file;
  const auto wrong = [&](const std::string& message) { lua::report_strategy_mistake(file, message, diagnostics); };
  auto options = extended.base.entry->options;
  for (const auto& [name, value] : extended.base.preset.items())
    if (auto* option = find_option(options, name)) {
      option->default_value = value;
      option->required = false;
    }
  for (const auto& [name, given] : file.base_options.items()) {
    auto* option = find_option(options, name);
    nlohmann::json value = given;
    if (!option) {
      std::vector<std::string> names;
      for (const auto& known : options) names.push_back(known.name);
      const auto near = nearest(name, names);
      wrong(fmt::format("option `{}`: `{}` has no such option{}; a new one is a table with a `type`", name,
                        extended.base_name(), near ? " (did you mean `" + *near + "`?)" : ""));
    } else if (const auto problem = check_option(*option, value)) {
      wrong(problem->message);
    } else if (const auto preset = extended.base.preset.find(name);
               preset != extended.base.preset.end() && *preset != value) {
      wrong(fmt::format("base = \"{}\" means {} = {}: use `{}` as base for another value", extended.base_name(), name,
                        preset->dump(), extended.base.entry->name));
    } else {
      option->default_value = value;
      option->required = false;
    }
  }
  for (const auto& own : file.options) {
    if (find_option(extended.base.entry->options, own.name))
      wrong(fmt::format("option `{}`: `{}` has it already: give its value instead of a table with a type", own.name,
                        extended.base_name()));
    options.push_back({own});
  }
  if (diagnostics.size() > before) return std::nullopt;
  return options;
}

/// "memory and traffic of `NAME` are not known ...", or empty if the entry has both.
std::string note_on_missing_predictions(const Entry& entry) {
  std::string unsaid;
  if (!entry.memory) unsaid = "memory";
  if (!entry.traffic) unsaid += unsaid.empty() ? "traffic" : " and traffic";
  if (unsaid.empty()) return "";
  return fmt::format("{} of `{}` {} not known: its file has no function for it", unsaid, entry.name,
                     entry.memory || entry.traffic ? "is" : "are");
}

/// The entry `name` of a file with a `base`: that of the built-in strategy, with what the functions of the file change. Mistakes in its
/// options go to `diagnostics`; then there is no entry.
std::optional<Entry> extended_entry(const std::string& name, const std::shared_ptr<PlannerScript>& script,
                                    std::vector<Diagnostic>& diagnostics) {
  const auto& file = script->file;
  const auto base = find_listed_strategy(file.base);
  RUNNER_CHECK(base && base->entry->plan, "no strategy `{}`", file.base);
  const ExtendedStrategy extended{.name = name, .script = script, .base = *base};
  auto options = options_of(extended, diagnostics);
  if (!options) return std::nullopt;
  Entry entry = *base->entry;
  entry.name = name;
  entry.aliases.clear();
  entry.summary =
      file.about.empty() ? fmt::format("`{}`, extended by {}.", extended.base_name(), file.shown) : file.about;
  entry.options = std::move(*options);
  entry.label = [name, label = entry.label, plain = base->entry->name](const Job& job) {
    return fmt::format("{} ({})", name, label ? label(job) : plain);
  };
  entry.refuse = [extended](const Job& job) { return extended.refuse(job); };
  entry.plan = [extended](const Job& job) { return extended.plan(job); };
  const bool sums = script->has("reduce");
  entry.memory = nullptr;
  entry.traffic = nullptr;
  if (!sums || script->has("memory")) entry.memory = [extended](const Job& job) { return extended.memory(job); };
  if (!sums || script->has("traffic")) entry.traffic = [extended](const Job& job) { return extended.traffic(job); };
  entry.host_work = [extended](const Job& job) { return program_host_work(extended.job(job), extended.plan(job)); };
  entry.notes = [extended, unsaid = note_on_missing_predictions(entry)](const Job& job) {
    auto list = extended.notes(job);
    if (!unsaid.empty()) list.push_back(unsaid);
    return list;
  };
  return entry;
}

/// The plan of a strategy in Lua. Its units are as in ddp; sharded parameters and others are in different units.
ParallelPlan script_plan(PlannerScript& script, const Job& job) {
  const auto [first, others] = bucket_bytes(job);
  std::function<bool(const ParameterSpec&)> shard;
  if (script.has("shard"))
    shard = [&](const ParameterSpec& parameter) { return script.shards(parameter, job.options); };
  ParallelPlan plan = replicated_plan(job, first, others, shard);
  plan.overlap = true;
  plan.reductions_in_flight = std::ssize(plan.units);
  plan.own_reducer = true;
  plan.reducer.replicas_differ = script.file.replicas_differ;
  plan.reduces_in_backward = script.has("reduce") && !script.has("after_update");
  quantize_units(job, plan);
  return plan;
}

Entry entry_of(const std::string& name, const std::shared_ptr<PlannerScript>& script) {
  const auto& file = script->file;
  Entry entry;
  entry.name = name;
  entry.summary = file.about.empty() ? "A strategy in Lua (" + file.shown + ")." : file.about;
  entry.options = strategy_options(file.options);
  if (const auto& cap = bucket_cap_option(); !find_option(file.options, cap.name)) entry.options.push_back({cap});
  entry.refuse = [script](const Job& job) { return refuse_plan(job, script_plan(*script, job)); };
  entry.plan = [script](const Job& job) { return script_plan(*script, job); };
  if (file.functions.contains("memory"))
    entry.memory = [script](const Job& job) { return script->memory(job, script_plan(*script, job)); };
  if (file.functions.contains("traffic"))
    entry.traffic = [script](const Job& job) { return script->traffic(job, script_plan(*script, job)); };
  entry.notes = [unsaid = note_on_missing_predictions(entry)](const Job&) {
    return unsaid.empty() ? std::vector<std::string>() : std::vector{unsaid};
  };
  return entry;
}

}  // namespace

std::vector<lua::BuiltInStrategy> built_in_strategies() {
  std::vector<lua::BuiltInStrategy> list;
  for (const auto& entry : catalog()) {
    if (!entry.unavailable.empty()) continue;
    std::vector<std::string> options;
    for (const auto& option : entry.options) options.push_back(option.name);
    list.push_back({.name = entry.name, .about = entry.summary, .options = options});
    for (const auto& alias : entry.aliases)
      list.push_back({.name = alias.name, .about = "As `" + entry.name + "`: " + entry.summary, .options = options});
  }
  return list;
}

const Entry* learn_script_strategy(const Recipe& recipe, std::vector<Diagnostic>& diagnostics,
                                   lua::RegisteredNames* names) {
  auto request = lua::strategy_request(recipe, built_in_strategies());
  auto script = std::make_shared<PlannerScript>(recipe);
  auto file = lua::load_strategy_file(script->state(), request, diagnostics, names);
  if (!file) return nullptr;
  script->file = std::move(*file);
  auto entry = script->file.base.empty() ? std::optional(entry_of(recipe.strategy.name, script))
                                         : extended_entry(recipe.strategy.name, script, diagnostics);
  if (!entry) return nullptr;
  if (script->has("setup_optimizer"))
    entry->setup_optimizer = [script](const json& groups, const json& options) {
      return script->groups(groups, options);
    };
  return learn_strategy(std::move(*entry));
}

const Entry* script_entry(const Recipe& recipe) {
  if (!lua::names_script(recipe.strategy.name) && !recipe.strategy.options.contains("registry")) return nullptr;
  std::vector<Diagnostic> diagnostics;
  const Entry* entry = learn_script_strategy(recipe, diagnostics);
  if (!diagnostics.empty()) throw RecipeError(diagnostics);
  return entry;
}

const Entry* learn_script_strategy(const std::string& name) {
  Recipe recipe;
  recipe.strategy.name = name;
  std::vector<Diagnostic> diagnostics;
  const auto* entry = learn_script_strategy(recipe, diagnostics);
  if (!diagnostics.empty()) throw RecipeError(diagnostics);
  return entry;
}

std::vector<const Entry*> learn_registered_strategies(const std::string& registry, std::vector<std::string>* removed) {
  Recipe recipe;
  recipe.strategy.options["registry"] = registry;
  std::vector<Diagnostic> diagnostics;
  lua::RegisteredNames names;
  std::vector<const Entry*> entries;
  learn_script_strategy(recipe, diagnostics, &names);
  for (const auto& name : names.registered) {
    recipe.strategy.name = name;
    if (const auto* entry = learn_script_strategy(recipe, diagnostics)) entries.push_back(entry);
  }
  if (!diagnostics.empty()) throw RecipeError(diagnostics);
  if (removed) *removed = names.removed;
  return entries;
}

bool has_script_hook(const json& options) {
  auto found = options.find(comm_hook_option);
  return found != options.end() && found->is_string() && lua::names_script(*found);
}

}  // namespace runner
