// The differences between runs: keys of the recipe, code, environment, results.
#include <algorithm>
#include <map>
#include <set>

#include "runner/ui/api.hpp"

namespace runner::ui {

using nlohmann::json;

namespace {

constexpr size_t compared_max = 200;

/// Dotted keys of an object, down to values and lists.
void flatten(const json& value, const std::string& key, std::map<std::string, json>& into) {
  if (value.is_object() && (!value.empty() || key.empty())) {  // an imported run has no recipe: {}
    for (const auto& [name, part] : value.items()) flatten(part, key.empty() ? name : key + "." + name, into);
    return;
  }
  if (!value.is_null()) into[key] = value;
}

/// The values of a run that are compared, in four parts.
struct ComparedRun {
  std::string id, metric;
  std::map<std::string, json> config, code, environment, results;
};

ComparedRun read_compared(const Ledger& ledger, const std::string& id) {
  const json run = ledger.show(id);
  ComparedRun compared{.id = id, .metric = run["metric"], .config = {}, .code = {}, .environment = {}, .results = {}};
  flatten(run["config"], "", compared.config);
  compared.config.erase("run.name");
  flatten(run["git"], "git", compared.code);
  compared.code["build"] = run["build_id"];
  flatten(run["host"], "", compared.environment);
  compared.environment.erase("memory_free_bytes");
  compared.environment["ranks"] = run["world_size"];
  compared.environment["working directory"] = run["working_directory"];
  compared.results["status"] = run["status"];
  compared.results["steps"] = run["steps"];
  for (const auto& [name, metric] : run["metrics"].items()) {
    compared.results["last(" + name + ")"] = metric["last"];
    compared.results["min(" + name + ")"] = metric["min"];
    compared.results["max(" + name + ")"] = metric["max"];
  }
  for (const char* name : {"memory_bytes_per_rank", "step_seconds", "tokens_per_s", "time_to_first_step_s"})
    if (run["measured"].is_object() && run["measured"].contains(name) && !run["measured"][name].is_null())
      compared.results[name] = run["measured"][name];
  return compared;
}

/// [{key, values}]: the keys whose values differ between the runs; null: the run has none.
json differing(const std::vector<ComparedRun>& runs, std::map<std::string, json> ComparedRun::*part, bool all) {
  std::set<std::string> keys;
  for (const auto& run : runs)
    for (const auto& [key, value] : run.*part) keys.insert(key);
  json list = json::array();
  for (const auto& key : keys) {
    json values = json::array();
    for (const auto& run : runs) {
      const auto found = (run.*part).find(key);
      values.push_back(found == (run.*part).end() ? json() : found->second);
    }
    const bool same = std::all_of(values.begin(), values.end(), [&](const json& value) { return value == values[0]; });
    if (!same || all) list.push_back({{"key", key}, {"values", values}, {"same", same}});
  }
  return list;
}

}  // namespace

Response get_compare(const Api& api, const Request& request, const Captures&) {
  const auto chosen = chosen_runs(api, request, compared_max);
  const bool all = request.parameter("all") == "yes";
  if (chosen.rows.empty()) throw ApiError(400, "there are no runs to compare");
  const Ledger ledger(api.readers.home().string(), Ledger::Mode::read);
  std::vector<ComparedRun> runs;
  json names = json::array();
  for (const auto& run : chosen.rows) {
    runs.push_back(read_compared(ledger, run.id));
    names.push_back({{"id", run.id}, {"name", run.name}, {"metric", runs.back().metric}});
  }
  return json_response({{"runs", names},
                        {"left_out", chosen.left_out},
                        {"config", differing(runs, &ComparedRun::config, all)},
                        {"code", differing(runs, &ComparedRun::code, all)},
                        {"environment", differing(runs, &ComparedRun::environment, all)},
                        {"results", differing(runs, &ComparedRun::results, true)}});
}

}  // namespace runner::ui
