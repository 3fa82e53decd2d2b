#include "runner/selection/script_strategy.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <ranges>

#include "runner/lua/script_error.hpp"
#include "runner/lua/strategy_file.hpp"
#include "strategies/contract/gradient_buckets.hpp"
#include "strategies/program/program.hpp"

namespace runner {

using nlohmann::json;

namespace {

/// The plan of a strategy in Lua. Its units are as in ddp; sharded parameters and others are in different units.
ParallelPlan script_plan(const Job& job, const std::function<bool(const ParameterSpec&)>& shard) {
  const auto [first, others] = bucket_bytes(job);
  ParallelPlan plan = replicated_plan(job, first, others, shard);
  plan.overlap = true;
  plan.reductions_in_flight = std::ssize(plan.units);
  plan.own_reducer = true;
  quantize_units(job, plan);
  return plan;
}

// The arguments of the functions `shard`, `memory` and `traffic` of a file.

json parameter_for_script(const ParameterSpec& parameter) {
  return {{"name", parameter.name},
          {"shape", parameter.shape},
          {"numel", parameter.numel()},
          {"trainable", parameter.trainable}};
}

json job_for_script(const Job& job, const ParallelPlan& plan) {
  json list = json::array();
  for (const size_t bucket : trained_units(plan) | std::views::reverse) {
    const auto& unit = plan.units[bucket];
    list.push_back({{"numel", layout_of(*job.model, plan, unit).total}, {"sharded", is_sharded(plan, unit)}});
  }
  return {{"parameters", job.model->parameter_count()},
          {"world_size", job.world_size()},
          {"local_size", job.local_size},
          {"num_nodes", job.num_nodes},
          {"micro_batch_size", job.micro_batch_size},
          {"accumulation", job.accumulation},
          {"element_bytes", bytes_of(job.precision.parameter)},
          {"optimizer_states", job.optimizer_states},
          {"buckets", list},
          {"options", job.options}};
}

/// The functions of a file that the planner calls, with their own Lua state. Several threads make plans: `mutex` guards
/// it.
class ScriptClaims {
 public:
  ScriptClaims(const Recipe& recipe) : state_(lua::script_state_options(recipe)), name_(recipe.strategy.name) {}

  lua::State& state() { return state_; }
  lua::StrategyFile file;

  ParallelPlan plan(const Job& job) {
    ParallelPlan made = units(job);
    made.reduces_in_backward = file.functions.contains("reduce") && !file.functions.contains("after_update");
    return made;
  }

  /// The plan, with the parameters sharded that the file's function `shard` chooses.
  ParallelPlan units(const Job& job) {
    auto found = file.functions.find("shard");
    if (found == file.functions.end()) return script_plan(job, {});
    auto options = job.options;
    return script_plan(job, [&](const ParameterSpec& parameter) {
      // Asked once, so that every plan of this process is the same.
      const auto key = parameter_for_script(parameter).dump() + options.dump();
      if (const auto known = sharded_.find(key); known != sharded_.end()) return known->second;
      auto answer = call("shard", {parameter_for_script(parameter), options});
      if (!answer.is_boolean() && !answer.is_null())
        throw usage_error("{}: `shard` must return true or false, not {}", file.shown, answer.dump());
      return sharded_[key] = answer == true;
    });
  }

  json call(const std::string& function, const std::vector<json>& arguments) {
    std::vector<lua::Value> values;
    for (const auto& argument : arguments) values.push_back(lua::Value(state_.read_only(argument)));
    try {
      lua::Value result = state_.call(file.functions.at(function), values);
      return result.reference.is_table() ? state_.to_json(result.reference, function) : result.plain;
    } catch (const lua::LuaError& error) {
      throw Error(ExitCode::usage, lua::failure_text("strategy " + name_, function, error.what(), file.asked_at));
    }
  }

  std::mutex mutex;

 private:
  lua::State state_;
  std::string name_;                     ///< in the recipe
  std::map<std::string, bool> sharded_;  ///< answers of `shard`
};

MemoryParts memory_of(ScriptClaims& claims, const Job& job) {
  std::lock_guard lock(claims.mutex);
  const auto plan = claims.plan(job);
  auto said = claims.call("memory", {job_for_script(job, plan)});
  auto bytes = lua::claimed_count(said);
  if (!bytes)
    throw usage_error("{}: `memory` must return the bytes that a rank keeps, not {}", claims.file.shown, said.dump());
  auto parts = program_memory(job, plan);
  parts.communication += *bytes;
  parts.between_steps += *bytes;
  return parts;
}

std::vector<Traffic> traffic_of(ScriptClaims& claims, const Job& job) {
  if (job.world_size() == 1) return {};
  std::lock_guard lock(claims.mutex);
  const auto plan = claims.plan(job);
  std::vector<Traffic> list = program_traffic(job, plan);  // the gathers of shards
  auto wrong = [&](const json& what) {
    return usage_error(
        "{}: `traffic` must return a list of {{collective = \"all_reduce\", calls = n, bytes = of all calls}}, not {}",
        claims.file.shown, what.dump());
  };
  auto said = claims.call("traffic", {job_for_script(job, plan)});
  if (!said.is_array()) throw wrong(said);
  for (const auto& part : said) {
    if (!part.is_object() || !part.contains("collective")) throw wrong(part);
    auto calls = lua::claimed_count(part.value("calls", json())),
         bytes = lua::claimed_count(part.value("bytes", json()));
    if (!calls || !bytes) throw wrong(part);
    bool known = false;
    for (auto kind : {Collective::all_reduce, Collective::broadcast, Collective::all_gather, Collective::reduce_scatter,
                      Collective::all_to_all})
      if (part["collective"] == name_of(kind)) {
        list.push_back(make_traffic(kind, job.world_size(), *calls, *bytes));
        known = true;
      }
    if (!known) throw wrong(part);
  }
  return list;
}

Entry entry_of(const std::string& name, const std::shared_ptr<ScriptClaims>& claims) {
  const auto& file = claims->file;
  Entry entry;
  entry.name = name;
  entry.summary = file.about.empty() ? "A strategy in Lua (" + file.shown + ")." : file.about;
  entry.options = strategy_options(file.options);
  if (const auto& cap = bucket_cap_option(); !find_option(file.options, cap.name)) entry.options.push_back({cap});
  entry.refuse = [](const Job& job) {
    ParallelPlan plan;
    plan.own_reducer = true;
    return refuse_mesh(job, plan);
  };
  entry.plan = [claims](const Job& job) {
    std::lock_guard lock(claims->mutex);
    return claims->plan(job);
  };
  if (file.functions.contains("memory")) entry.memory = [claims](const Job& job) { return memory_of(*claims, job); };
  if (file.functions.contains("traffic")) entry.traffic = [claims](const Job& job) { return traffic_of(*claims, job); };
  std::string unsaid;
  if (!entry.memory) unsaid = "memory";
  if (!entry.traffic) unsaid += unsaid.empty() ? "traffic" : " and traffic";
  const char* verb = entry.memory || entry.traffic ? "is" : "are";
  entry.notes = [name, unsaid, verb](const Job&) {
    std::vector<std::string> notes;
    if (!unsaid.empty())
      notes.push_back(fmt::format("{} of `{}` {} not known: its file has no function for it", unsaid, name, verb));
    return notes;
  };
  return entry;
}

}  // namespace

const Entry* learn_script_strategy(const Recipe& recipe, std::vector<Diagnostic>& diagnostics,
                                   std::vector<std::string>* registered) {
  auto request = lua::strategy_request(recipe, strategy_names());
  auto claims = std::make_shared<ScriptClaims>(recipe);
  auto file = lua::load_strategy_file(claims->state(), request, diagnostics, registered);
  if (!file) return nullptr;
  claims->file = std::move(*file);
  return learn_strategy(entry_of(recipe.strategy.name, claims));
}

const Entry* learn_script_strategy(const std::string& name) {
  Recipe recipe;
  recipe.strategy.name = name;
  std::vector<Diagnostic> diagnostics;
  const auto* entry = learn_script_strategy(recipe, diagnostics);
  if (!diagnostics.empty()) throw RecipeError(diagnostics);
  return entry;
}

std::vector<const Entry*> learn_registered_strategies(const std::string& registry) {
  Recipe recipe;
  recipe.strategy.options["registry"] = registry;
  std::vector<Diagnostic> diagnostics;
  std::vector<std::string> names;
  std::vector<const Entry*> entries;
  learn_script_strategy(recipe, diagnostics, &names);
  for (const auto& name : names) {
    recipe.strategy.name = name;
    if (const auto* entry = learn_script_strategy(recipe, diagnostics)) entries.push_back(entry);
  }
  if (!diagnostics.empty()) throw RecipeError(diagnostics);
  return entries;
}

bool has_script_hook(const json& options) {
  auto found = options.find(comm_hook_option);
  return found != options.end() && found->is_string() && lua::names_script(*found);
}

}  // namespace runner
