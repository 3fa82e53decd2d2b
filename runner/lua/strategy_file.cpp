#include "runner/lua/strategy_file.hpp"

#include <algorithm>
#include <memory>
#include <set>

#include "runner/base/text.hpp"

namespace runner::lua {

namespace {

const std::string prefix = "lua:";

/// Strategies that a Lua file registers by name, with the functions of Lightning's StrategyRegistry. Built-in strategies are in the
/// registry, too. What a file does to a name is for recipes that name this file.
///
///   strategies.register("averaged", require "local_sgd", "Averages every 8 steps")
///   strategies.override(name, table, about)   the same for a name that exists, also for that of a built-in strategy
///   strategies.get(name)                      the registered table, or that of a file "lua:..."; for a built-in one a new table that
///                                             extends it: {name, base, options = {}}
///   strategies.describe(name)                 {name, about, kind = "built-in" or "Lua", base, options = {their names}}
///   strategies.available_strategies()         all names, sorted
///   strategies.remove(name)                   recipes cannot use the name any more
///
/// Files that it has run share ownership of it.
class StrategyRegistry : public std::enable_shared_from_this<StrategyRegistry> {
 public:
  struct Entry {
    Reference table;
    std::string about;
  };
  /// Use std::make_shared.
  StrategyRegistry(State& state, std::vector<BuiltInStrategy> built_in)
      : state_(state), built_in_(std::move(built_in)) {}

  /// Runs a file in which `strategies` has the functions above. Mistakes go to `diagnostics`.
  bool run(const ScriptSource& source, std::vector<Diagnostic>& diagnostics);
  /// Null if there is none of that name.
  const Entry* find(const std::string& name) const;
  std::vector<std::string> registered() const;
  /// Names of built-in strategies, as the program spells them.
  std::vector<std::string> removed() const { return {removed_.begin(), removed_.end()}; }

 private:
  Value add(const Arguments& arguments);
  Value override_one(const Arguments& arguments);
  void put(const Arguments& arguments, const std::string& name);
  Value describe(const Arguments& arguments);
  Value get(const Arguments& arguments);
  Value list() const { return Value(nlohmann::json(all())); }
  Value remove(const Arguments& arguments);
  std::vector<std::string> all() const;
  /// Null if there is none, or if it was removed.
  const BuiltInStrategy* built_in(const std::string& name) const;
  std::string unknown(const char* verb, const std::string& name) const;

  State& state_;
  std::vector<BuiltInStrategy> built_in_;
  std::set<std::string> removed_;
  std::map<std::string, Entry> entries_;
};

bool StrategyRegistry::run(const ScriptSource& source, std::vector<Diagnostic>& diagnostics) {
  auto self = shared_from_this();
  Value verbs = state_.load_text(
      "return {register = register, override = override, get = get, describe = describe, remove = remove, "
      "available_strategies = available_strategies}",
      "strategies", {},
      {{"register", {}, [self](const Arguments& arguments) { return self->add(arguments); }},
       {"override", {}, [self](const Arguments& arguments) { return self->override_one(arguments); }},
       {"get", {}, [self](const Arguments& arguments) { return self->get(arguments); }},
       {"describe", {}, [self](const Arguments& arguments) { return self->describe(arguments); }},
       {"available_strategies", {}, [self](const Arguments&) { return self->list(); }},
       {"remove", {}, [self](const Arguments& arguments) { return self->remove(arguments); }}});
  return run_script(state_, strategy_kind(), source, {{"strategies", verbs, {}}}, diagnostics);
}

const StrategyRegistry::Entry* StrategyRegistry::find(const std::string& name) const {
  auto found = entries_.find(name);
  if (const auto* known = built_in(name); known && found == entries_.end()) found = entries_.find(known->name);
  return found == entries_.end() ? nullptr : &found->second;
}

std::vector<std::string> StrategyRegistry::registered() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

const BuiltInStrategy* StrategyRegistry::built_in(const std::string& name) const {
  auto found = std::find_if(built_in_.begin(), built_in_.end(),
                            [&](const auto& known) { return lower(known.name) == lower(name); });
  return found == built_in_.end() || removed_.contains(found->name) ? nullptr : &*found;
}

std::vector<std::string> StrategyRegistry::all() const {
  auto names = registered();
  for (const auto& known : built_in_)
    if (!removed_.contains(known.name) && !entries_.contains(known.name)) names.push_back(known.name);
  std::sort(names.begin(), names.end());
  return names;
}

std::string StrategyRegistry::unknown(const char* verb, const std::string& name) const {
  auto near = nearest(name, all());
  return fmt::format("{}: there is no strategy `{}`{}", verb, name, near ? "; did you mean `" + *near + "`?" : "");
}

Value StrategyRegistry::add(const Arguments& arguments) {
  auto name = arguments.text(1);
  static const char* const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
  if (name.empty() || name.find_first_not_of(allowed) != std::string::npos)
    throw ScriptMistake(fmt::format("register: \"{}\" is not a name: letters, digits, _ and - only", name));
  if (name == "auto") throw ScriptMistake("register: `auto` is not the name of a strategy: it chooses one");
  if (built_in(name)) throw ScriptMistake(fmt::format("register: `{}` is built in; `override` replaces it", name));
  if (find(name))
    throw ScriptMistake(fmt::format("register: `{}` is registered already; `override` replaces it", name));
  put(arguments, name);
  return {};
}

Value StrategyRegistry::override_one(const Arguments& arguments) {
  auto name = arguments.text(1);
  const auto* known = built_in(name);
  if (!known && !find(name)) throw ScriptMistake(unknown("override", name));
  put(arguments, known ? known->name : name);
  return {};
}

void StrategyRegistry::put(const Arguments& arguments, const std::string& name) {
  arguments.at_most(3);
  Value table = arguments.value(2);
  if (!table.reference.is_table()) arguments.wrong(2, "the table of a strategy");
  entries_[name] = {table.reference, arguments.text(3, "")};
}

Value StrategyRegistry::get(const Arguments& arguments) {
  arguments.at_most(1);
  auto name = arguments.text(1);
  if (const auto* entry = find(name)) return Value(entry->table);
  if (names_script(name)) {
    auto bare = name.substr(name.find(':') + 1);
    auto found = shipped_strategies().find(bare);
    if (found == shipped_strategies().end())
      throw ScriptMistake(
          fmt::format("get: there is no shipped strategy \"{}\"; use `require` for a file of your own", bare));
    return state_.load_text(found->second, strategy_kind().folder + "/" + bare + ".lua");
  }
  if (const auto* known = built_in(name)) {
    nlohmann::json extends = {{"name", known->name}, {"base", known->name}, {"options", nlohmann::json::object()}};
    return Value(state_.table(extends));
  }
  throw ScriptMistake(unknown("get", name));
}

Value StrategyRegistry::describe(const Arguments& arguments) {
  arguments.at_most(1);
  auto name = arguments.text(1);
  if (const auto* entry = find(name)) {
    nlohmann::json about = {{"name", name}, {"kind", "Lua"}, {"options", nlohmann::json::array()}};
    const auto own = state_.field(entry->table, "about").plain, base = state_.field(entry->table, "base").plain;
    about["about"] = !entry->about.empty() ? nlohmann::json(entry->about) : own.is_string() ? own : "";
    if (base.is_string()) about["base"] = base;
    if (const auto options = state_.field(entry->table, "options").reference; options.is_table())
      about["options"] = state_.keys(options);
    return Value(state_.table(about));
  }
  const auto* known = built_in(name);
  if (!known) throw ScriptMistake(unknown("describe", name));
  return Value(state_.table(
      {{"name", known->name}, {"kind", "built-in"}, {"about", known->about}, {"options", known->options}}));
}

/// A name that overrides a built-in one is removed altogether.
Value StrategyRegistry::remove(const Arguments& arguments) {
  arguments.at_most(1);
  auto name = arguments.text(1);
  const auto* known = built_in(name);
  if (known) removed_.insert(known->name);
  if (entries_.erase(known ? known->name : name) == 0 && !known) throw ScriptMistake(unknown("remove", name));
  return {};
}

const ScriptKind& comm_hook_kind() {
  static const ScriptKind kind{.noun = "comm hook",
                               .section = "strategy",
                               .folder = "recipes/strategies_lua",
                               .functions = {"setup", "reduce", "memory", "traffic"},
                               .shipped = shipped_strategies(),
                               .objects = strategy_arguments(),
                               .options_at = {{"setup", 2}, {"reduce", 3}}};
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

const std::map<std::string, std::vector<ObjectNames>>& strategy_arguments() {
  static const ObjectNames tensor{
      .name = "tensor",
      .members = {"numel", "rows",    "columns",     "shape",  "norm",    "min",    "is_finite", "histogram", "sum",
                  "mean",  "max",     "logsumexp",   "pow",    "clone",   "exp",    "log",       "abs",       "sqrt",
                  "tanh",  "sigmoid", "to",          "gather", "softmax", "detach", "narrow",    "largest",   "take",
                  "zero_", "scale_",  "log_softmax", "copy_",  "add_",    "lerp_",  "put_",      "index_add_"}};
  static const ObjectNames world{.name = "world",
                                 .members = {"all_gather", "all_gather_async", "all_reduce", "all_reduce_async",
                                             "reduce_scatter", "reduce_scatter_async", "broadcast", "broadcast_async",
                                             "shift", "shift_async", "barrier", "group", "rank", "size"}};
  static const ObjectNames model{.name = "model", .members = {"parameter", "parameter_names"}};
  static const ObjectNames bucket{.name = "bucket",
                                  .members = {"gradients", "parameters", "shard", "index", "numel", "sharded"},
                                  .parts = {{"gradients", tensor}, {"parameters", tensor}, {"shard", tensor}}};
  static const ObjectNames context{.name = "context",
                                   .members = {"kept", "zeros", "buckets", "loss_scale", "model", "step", "world"},
                                   .parts = {{"world", world}, {"model", model}}};
  static const std::map<std::string, std::vector<ObjectNames>> arguments = {{"setup", {context}},
                                                                            {"setup_module", {model, context}},
                                                                            {"reduce", {bucket, context}},
                                                                            {"after_update", {context}}};
  return arguments;
}

void report_strategy_mistake(const ScriptFile& file, const std::string& message, std::vector<Diagnostic>& diagnostics) {
  Diagnostic diagnostic{.code = "strategy-file", .message = message, .section = "strategy"};
  diagnostic.place.kind = Origin::Kind::file;
  diagnostic.place.file = file.shown;
  diagnostic.other = file.asked_at;
  diagnostic.other_message = "the file is named here";
  diagnostics.push_back(diagnostic);
}

const ScriptKind& strategy_kind() {
  static const ScriptKind kind{
      .noun = "strategy",
      .section = "strategy",
      .folder = "recipes/strategies_lua",
      .functions = {"setup", "setup_module", "setup_optimizer", "units", "shard", "reduce", "after_update", "memory",
                    "traffic"},
      .fields = {"base", "replicas_differ"},
      .shipped = shipped_strategies(),
      .objects = strategy_arguments(),
      .options_at = {{"setup", 2}, {"setup_module", 3}, {"units", 1}, {"shard", 1}, {"reduce", 3}, {"after_update", 2}},
      .further_options = {"timeout", "registry", "process_group_backend"}};
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
