#include "runner/lua/strategy_registry.hpp"

#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/lua/strategy_file.hpp"

namespace runner::lua {

StrategyRegistry::StrategyRegistry(State& state, std::vector<BuiltInStrategy> built_in)
    : state_(state), built_in_(std::move(built_in)) {}

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

Value StrategyRegistry::list() const { return Value(nlohmann::json(all())); }

/// A name that overrides a built-in one is removed altogether.
Value StrategyRegistry::remove(const Arguments& arguments) {
  arguments.at_most(1);
  auto name = arguments.text(1);
  const auto* known = built_in(name);
  if (known) removed_.insert(known->name);
  if (entries_.erase(known ? known->name : name) == 0 && !known) throw ScriptMistake(unknown("remove", name));
  return {};
}

}  // namespace runner::lua
