#include "runner/selection/script_strategy.hpp"

#include "runner/selection/extended_strategy.hpp"
#include "runner/selection/planner_script.hpp"
#include "strategies/contract/gradient_buckets.hpp"
#include "strategies/program/program.hpp"

namespace runner {

using nlohmann::json;

namespace {

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
