#include "runner/lua/strategy_file.hpp"

#include "runner/base/text.hpp"
#include "runner/lua/strategy_names.hpp"
#include "runner/lua/strategy_registry.hpp"

namespace runner::lua {

namespace {

const std::string prefix = "lua:";

const ScriptKind& comm_hook_kind() {
  static const ScriptKind kind{.noun = "comm hook",
                               .section = "strategy",
                               .folder = "recipes/strategies_lua",
                               .functions = {"setup", "reduce", "memory", "traffic"},
                               .shipped = shipped_strategies(),
                               .objects = strategy_arguments()};
  return kind;
}

/// The mistake in the field `base`; empty: none.
std::string mistake_in_base(const Value& value, const std::vector<BuiltInStrategy>& built_in) {
  if (!value.plain.is_string())
    return fmt::format("`base` must be the name of a built-in strategy such as \"fsdp\", not {}", kind_of(value));
  const std::string name = value.plain;
  if (names_script(name))
    return fmt::format(
        "base = \"{}\": only built-in strategies can be extended, because the plan of a strategy in Lua is made by its "
        "own functions; take over those functions: `local other = require \"FILE\"`, or strategies.get(\"{}\") in a "
        "registry",
        name, name);
  std::vector<std::string> names;
  for (const auto& known : built_in) {
    if (lower(known.name) == lower(name)) return "";
    names.push_back(known.name);
  }
  const auto near = nearest(name, names);
  return fmt::format("base = \"{}\": there is no built-in strategy of that name{}", name,
                     near ? "; did you mean \"" + *near + "\"?" : "; `runner strategies` lists them");
}

/// The mistake in the functions of a file with, or without, a `base`; empty: none.
std::string mistake_in_functions(const StrategyFile& file) {
  if (!file.base.empty() && file.functions.contains("shard"))
    return fmt::format(
        "`shard` is for strategies without a `base`: with base = \"{}\", the plan of `{}` says what is "
        "sharded",
        file.base, file.base);
  if (file.base.empty() && file.functions.contains("units"))
    return "`units` needs a `base`, such as base = \"ddp\": without one, buckets follow bucket_cap_mb";
  if (file.base.empty() && !file.replicas_differ && !file.functions.contains("reduce"))
    return "without a function `reduce`, ranks train on different gradients: set `replicas_differ = true`, or extend a "
           "built-in strategy: `base = \"ddp\"`";
  if (file.replicas_differ && file.functions.contains("shard"))
    return "`shard` needs equal replicas: ranks gather the shards of others, which differ with `replicas_differ`";
  return "";
}

/// Checks and reads the fields of a strategy.
std::optional<StrategyFile> complete(std::optional<ScriptFile> script, const StrategyRequest& request,
                                     std::vector<Diagnostic>& diagnostics) {
  if (!script) return {};
  StrategyFile file;
  static_cast<ScriptFile&>(file) = std::move(*script);
  const auto wrong = [&](const std::string& message) { report_strategy_mistake(file, message, diagnostics); };
  if (auto found = file.fields.find("base"); found != file.fields.end()) {
    if (const auto mistake = mistake_in_base(found->second, request.built_in); !mistake.empty()) {
      wrong(mistake);
      return {};
    }
    file.base = found->second.plain;
  }
  if (auto found = file.fields.find("replicas_differ"); found != file.fields.end()) {
    if (!found->second.plain.is_boolean()) {
      wrong(fmt::format("`replicas_differ` must be true or false, not {}", kind_of(found->second)));
      return {};
    }
    file.replicas_differ = found->second.plain;
  }
  if (const auto mistake = mistake_in_functions(file); !mistake.empty()) {
    wrong(mistake);
    return {};
  }
  return file;
}

}  // namespace

void report_strategy_mistake(const ScriptFile& file, const std::string& message, std::vector<Diagnostic>& diagnostics) {
  Diagnostic diagnostic{.code = "strategy-file", .message = message, .section = "strategy"};
  diagnostic.place.kind = Origin::Kind::file;
  diagnostic.place.file = file.shown;
  diagnostic.other = file.asked_at;
  diagnostic.other_message = "the file is named here";
  diagnostics.push_back(diagnostic);
}

const ScriptKind& strategy_kind() {
  static const ScriptKind kind{.noun = "strategy",
                               .section = "strategy",
                               .folder = "recipes/strategies_lua",
                               .functions = {"setup", "setup_module", "setup_optimizer", "units", "shard", "reduce",
                                             "after_update", "memory", "traffic"},
                               .fields = {"base", "replicas_differ"},
                               .shipped = shipped_strategies(),
                               .objects = strategy_arguments()};
  return kind;
}

StrategyRequest strategy_request(const Recipe& recipe, std::vector<BuiltInStrategy> built_in) {
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
                                               std::vector<Diagnostic>& diagnostics, RegisteredNames* names) {
  if (names_script(request.name)) {
    ScriptSource source{request.name.substr(prefix.size()), request.asked_at};
    return complete(load_script(state, strategy_kind(), source, diagnostics), request, diagnostics);
  }
  if (request.registry.empty()) return {};
  auto registry = std::make_shared<StrategyRegistry>(state, request.built_in);
  if (!registry->run({request.registry, request.registry_at}, diagnostics)) return {};
  if (names) *names = {.registered = registry->registered(), .removed = registry->removed()};
  const auto* found = registry->find(request.name);
  if (!found) return {};
  auto file = complete(read_script(state, strategy_kind(), {request.name, request.asked_at}, request.registry,
                                   found->table, diagnostics),
                       request, diagnostics);
  if (file && !found->about.empty()) file->about = found->about;
  return file;
}

std::optional<ScriptFile> load_comm_hook_file(State& state, const std::string& name, const Origin& asked_at,
                                              std::vector<Diagnostic>& diagnostics) {
  auto script = load_script(state, comm_hook_kind(), {name.substr(prefix.size()), asked_at}, diagnostics);
  if (!script || script->functions.contains("reduce")) return script;
  report_strategy_mistake(*script, "a comm hook needs a function `reduce`", diagnostics);
  return {};
}

}  // namespace runner::lua
