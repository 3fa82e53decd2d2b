#include "runner/lua/strategy_registry.hpp"

#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/lua/strategy_file.hpp"

namespace runner::lua {

StrategyRegistry::StrategyRegistry(State& state, std::vector<std::string> built_in)
    : state_(state), built_in_(std::move(built_in)) {}

bool StrategyRegistry::run(const ScriptSource& source, std::vector<Diagnostic>& diagnostics) {
  auto self = shared_from_this();
  Value verbs = state_.load_text(
      "return {register = register, get = get, available_strategies = available_strategies, remove = remove}",
      "strategies", {},
      {{"register", {}, [self](const Arguments& arguments) { return self->add(arguments); }},
       {"get", {}, [self](const Arguments& arguments) { return self->get(arguments); }},
       {"available_strategies", {}, [self](const Arguments&) { return self->list(); }},
       {"remove", {}, [self](const Arguments& arguments) { return self->remove(arguments); }}});
  return run_script(state_, strategy_kind(), source, {{"strategies", verbs, {}}}, diagnostics);
}

const StrategyRegistry::Entry* StrategyRegistry::find(const std::string& name) const {
  auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

std::vector<std::string> StrategyRegistry::registered() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

bool StrategyRegistry::is_built_in(const std::string& name) const {
  return std::find(built_in_.begin(), built_in_.end(), lower(name)) != built_in_.end();
}

std::vector<std::string> StrategyRegistry::all() const {
  auto names = registered();
  names.insert(names.end(), built_in_.begin(), built_in_.end());
  std::sort(names.begin(), names.end());
  return names;
}

std::string StrategyRegistry::unknown(const char* verb, const std::string& name) const {
  auto near = nearest(name, all());
  return fmt::format("{}: there is no strategy `{}`{}", verb, name, near ? "; did you mean `" + *near + "`?" : "");
}

Value StrategyRegistry::add(const Arguments& arguments) {
  arguments.at_most(3);
  auto name = arguments.text(1);
  static const char* const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
  if (name.empty() || name.find_first_not_of(allowed) != std::string::npos)
    throw ScriptMistake(fmt::format("register: \"{}\" is not a name: letters, digits, _ and - only", name));
  if (is_built_in(name) || name == "auto") throw ScriptMistake(fmt::format("register: `{}` is built in", name));
  if (entries_.contains(name))
    throw ScriptMistake(fmt::format("register: `{}` is registered already; remove it first", name));
  Value table = arguments.value(2);
  if (!table.reference.is_table()) arguments.wrong(2, "the table of a strategy");
  entries_[name] = {table.reference, arguments.text(3, "")};
  return {};
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
  if (is_built_in(name)) return Value(state_.read_only({{"name", lower(name)}}));
  throw ScriptMistake(unknown("get", name));
}

Value StrategyRegistry::list() const { return Value(nlohmann::json(all())); }

Value StrategyRegistry::remove(const Arguments& arguments) {
  arguments.at_most(1);
  auto name = arguments.text(1);
  if (is_built_in(name)) throw ScriptMistake(fmt::format("remove: `{}` is built in and cannot be removed", name));
  if (entries_.erase(name) == 0) throw ScriptMistake(unknown("remove", name));
  return {};
}

}  // namespace runner::lua
