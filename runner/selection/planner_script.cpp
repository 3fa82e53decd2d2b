#include "runner/selection/planner_script.hpp"

#include <algorithm>
#include <ranges>
#include <set>

#include "runner/base/text.hpp"
#include "strategies/program/program.hpp"

namespace runner {

using nlohmann::json;

namespace {

// ---- arguments of the functions

json parameter_for_script(const ParameterSpec& parameter) {
  return {{"name", parameter.name},
          {"shape", parameter.shape},
          {"numel", parameter.numel()},
          {"trainable", parameter.trainable}};
}

json blocks_for_script(const ModelSpec& model) {
  json list = json::array();
  for (const auto& block : model.blocks) {
    json parameters = json::array();
    for (const auto& parameter : block.parameters) parameters.push_back(parameter_for_script(parameter));
    list.push_back({{"name", block.name}, {"layer", block.layer_name()}, {"parameters", parameters}});
  }
  return list;
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
          {"element_bytes", bytes_of(plan.own_reducer ? plan.gradient : job.precision.parameter)},
          {"optimizer_states", job.most_states()},
          {"buckets", list},
          {"options", job.options}};
}

/// The slots of the parameters that a name means: those of a block, of a layer, or a parameter.
std::map<std::string, std::vector<size_t>> slots_of_names(const ModelSpec& model) {
  std::map<std::string, std::vector<size_t>> slots;
  size_t slot = 0;
  for (const auto& block : model.blocks) {
    slots[block.name], slots[block.layer_name()];  // a block may have no parameters
    for (const auto& parameter : block.parameters) {
      for (const auto& name : std::set<std::string>{block.name, block.layer_name(), parameter.name})
        slots[name].push_back(slot);
      ++slot;
    }
  }
  return slots;
}

}  // namespace

std::vector<size_t> unit_numbers(const ModelSpec& model, const json& groups, const std::string& where) {
  const auto known = slots_of_names(model);
  const auto parameters = model.parameters();
  constexpr size_t none = SIZE_MAX;
  std::vector<size_t> units(parameters.size(), none);
  const auto wrong = [&](const json& what) {
    return usage_error(
        "{}: `units` must return a list of units, each a list of names of blocks, layers or parameters, "
        "not {}",
        where, what.dump());
  };
  if (!groups.is_array() || groups.empty()) throw wrong(groups);
  for (size_t unit = 0; unit < groups.size(); ++unit) {
    if (!groups[unit].is_array() || groups[unit].empty()) throw wrong(groups[unit]);
    for (const auto& name : groups[unit]) {
      if (!name.is_string()) throw wrong(name);
      const auto found = known.find(name);
      if (found == known.end()) {
        std::vector<std::string> names;
        for (const auto& [one, slots] : known) names.push_back(one);
        const auto near = nearest(name.get<std::string>(), names);
        throw usage_error("{}: `units`: the model has no block, layer or parameter \"{}\"{}", where,
                          name.get<std::string>(), near ? "; did you mean \"" + *near + "\"?" : "");
      }
      for (const size_t slot : found->second) {
        if (units[slot] != none)
          throw usage_error("{}: `units`: the parameter `{}` is in unit {} and again in unit {}", where,
                            parameters[slot]->name, units[slot] + 1, unit + 1);
        units[slot] = unit;
      }
    }
  }
  std::vector<std::string> left;
  for (size_t slot = 0; slot < units.size(); ++slot) {
    if (units[slot] != none) continue;
    if (parameters[slot]->trainable) left.push_back("`" + parameters[slot]->name + "`");
    units[slot] = groups.size();
  }
  if (left.empty()) return units;
  const size_t count = left.size();
  constexpr size_t shown = 5;
  if (count > shown) left.resize(shown);
  throw usage_error("{}: `units`: {} in no unit: {}{}", where,
                    count == 1 ? "a trained parameter is" : fmt::format("{} trained parameters are", count),
                    join(left, ", "), count > shown ? ", ..." : "");
}

PlannerScript::PlannerScript(const Recipe& recipe)
    : state_(lua::script_state_options(recipe)), name_(recipe.strategy.name) {}

json PlannerScript::call(const std::string& function, const std::vector<json>& arguments, const json& changed) {
  std::vector<lua::Value> values;
  if (!changed.is_null()) values.push_back(lua::Value(state_.table(changed)));
  for (const auto& argument : arguments) values.push_back(lua::Value(state_.read_only(argument)));
  try {
    lua::Value result = state_.call(file.functions.at(function), values);
    if (!changed.is_null() && result.is_nil()) result = values.front();
    return result.reference.is_table() ? state_.to_json(result.reference, function) : result.plain;
  } catch (const lua::LuaError& error) {
    throw Error(ExitCode::usage, lua::failure_text("strategy " + name_, function, error.what(), file.asked_at));
  } catch (const lua::ScriptMistake& mistake) {
    throw usage_error("{}: {}", file.shown, mistake.what());
  }
}

bool PlannerScript::shards(const ParameterSpec& parameter, const json& options) {
  std::lock_guard lock(mutex_);
  // Asked once, so that every plan of this process is the same.
  const auto key = parameter_for_script(parameter).dump() + options.dump();
  if (const auto known = sharded_.find(key); known != sharded_.end()) return known->second;
  const auto answer = call("shard", {parameter_for_script(parameter), options});
  if (!answer.is_boolean() && !answer.is_null())
    throw usage_error("{}: `shard` must return true or false, not {}", file.shown, answer.dump());
  return sharded_[key] = answer == true;
}

std::vector<size_t> PlannerScript::units(const Job& job) {
  std::lock_guard lock(mutex_);
  const auto blocks = blocks_for_script(*job.model);
  const auto key = blocks.dump() + job.options.dump();
  if (const auto known = units_.find(key); known != units_.end()) return known->second;
  return units_[key] = unit_numbers(*job.model, call("units", {blocks, job.options}), file.shown);
}

MemoryParts PlannerScript::memory(const Job& job, const ParallelPlan& plan) {
  auto parts = program_memory(job, plan);
  if (!has("memory")) return parts;
  std::lock_guard lock(mutex_);
  const auto said = call("memory", {job_for_script(job, plan)});
  const auto bytes = lua::claimed_count(said);
  if (!bytes)
    throw usage_error("{}: `memory` must return the bytes that a rank keeps, not {}", file.shown, said.dump());
  parts.communication += *bytes;
  parts.between_steps += *bytes;
  return parts;
}

std::vector<Traffic> PlannerScript::traffic(const Job& job, const ParallelPlan& plan) {
  auto list = program_traffic(job, plan);
  if (!has("traffic") || job.world_size() == 1) return list;
  std::lock_guard lock(mutex_);
  auto wrong = [&](const json& what) {
    return usage_error(
        "{}: `traffic` must return a list of {{collective = \"all_reduce\", calls = n, bytes = of all calls}}, not {}",
        file.shown, what.dump());
  };
  const auto said = call("traffic", {job_for_script(job, plan)});
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

json PlannerScript::groups(const json& groups, const json& options) {
  std::lock_guard lock(mutex_);
  return call("setup_optimizer", {options}, groups);
}

}  // namespace runner
