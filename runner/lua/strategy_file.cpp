#include "runner/lua/strategy_file.hpp"

#include "runner/lua/shipped.hpp"
#include "runner/lua/strategy_registry.hpp"

namespace runner::lua {

namespace {

const std::string prefix = "lua:";

const ScriptKind& comm_hook_kind() {
  static const ScriptKind kind{
      "comm hook", "strategy",          "recipes/strategies_lua", {"setup", "reduce", "memory", "traffic"},
      {},          shipped_strategies()};
  return kind;
}

void wrong(const ScriptFile& file, const std::string& message, std::vector<Diagnostic>& diagnostics) {
  Diagnostic diagnostic{.code = "strategy-file", .message = message, .section = "strategy"};
  diagnostic.place.kind = Origin::Kind::file;
  diagnostic.place.file = file.shown;
  diagnostic.other = file.asked_at;
  diagnostic.other_message = "the file is named here";
  diagnostics.push_back(diagnostic);
}

/// Checks and reads the fields of a strategy.
std::optional<StrategyFile> complete(std::optional<ScriptFile> script, std::vector<Diagnostic>& diagnostics) {
  if (!script) return {};
  StrategyFile file;
  static_cast<ScriptFile&>(file) = std::move(*script);
  if (auto found = file.fields.find("replicas_differ"); found != file.fields.end()) {
    if (!found->second.plain.is_boolean()) {
      wrong(file, fmt::format("`replicas_differ` must be true or false, not {}", kind_of(found->second)), diagnostics);
      return {};
    }
    file.replicas_differ = found->second.plain;
  }
  if (!file.replicas_differ && !file.functions.contains("reduce")) {
    wrong(file, "without a function `reduce`, ranks train on different gradients: set `replicas_differ = true`",
          diagnostics);
    return {};
  }
  if (file.replicas_differ && file.functions.contains("shard")) {
    wrong(file, "`shard` needs equal replicas: ranks gather the shards of others, which differ with `replicas_differ`",
          diagnostics);
    return {};
  }
  return file;
}

}  // namespace

const ScriptKind& strategy_kind() {
  static const ScriptKind kind{"strategy",
                               "strategy",
                               "recipes/strategies_lua",
                               {"setup", "shard", "reduce", "after_update", "memory", "traffic"},
                               {"replicas_differ"},
                               shipped_strategies()};
  return kind;
}

StrategyRequest strategy_request(const Recipe& recipe, std::vector<std::string> built_in) {
  StrategyRequest request{recipe.strategy.name, recipe.origin("strategy.name")};
  if (auto found = recipe.strategy.options.find("registry");
      found != recipe.strategy.options.end() && found->is_string()) {
    request.registry = *found;
    request.registry_at = recipe.origin("strategy.registry");
  }
  request.built_in = std::move(built_in);
  return request;
}

std::optional<StrategyFile> load_strategy_file(State& state, const StrategyRequest& request,
                                               std::vector<Diagnostic>& diagnostics,
                                               std::vector<std::string>* registered) {
  if (names_script(request.name)) {
    ScriptSource source{request.name.substr(prefix.size()), request.asked_at};
    return complete(load_script(state, strategy_kind(), source, diagnostics), diagnostics);
  }
  if (request.registry.empty()) return {};
  auto registry = std::make_shared<StrategyRegistry>(state, request.built_in);
  if (!registry->run({request.registry, request.registry_at}, diagnostics)) return {};
  if (registered) *registered = registry->registered();
  const auto* found = registry->find(request.name);
  if (!found) return {};
  auto file = complete(read_script(state, strategy_kind(), {request.name, request.asked_at}, request.registry,
                                   found->table, diagnostics),
                       diagnostics);
  if (file && !found->about.empty()) file->about = found->about;
  return file;
}

std::optional<ScriptFile> load_comm_hook_file(State& state, const std::string& name, const Origin& asked_at,
                                              std::vector<Diagnostic>& diagnostics) {
  auto script = load_script(state, comm_hook_kind(), {name.substr(prefix.size()), asked_at}, diagnostics);
  if (!script || script->functions.contains("reduce")) return script;
  wrong(*script, "a comm hook needs a function `reduce`", diagnostics);
  return {};
}

const std::map<std::string, std::string>& shipped_strategies() {
  static const std::map<std::string, std::string> strategies = [] {
    std::map<std::string, std::string> all;
    for (size_t i = 0; i < shipped_strategies_count; ++i)
      all.emplace(shipped_strategy_names[i], shipped_strategy_texts[i]);
    return all;
  }();
  return strategies;
}

}  // namespace runner::lua
