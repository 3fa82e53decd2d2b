#include "runner/selection/comm_hook_options.hpp"

#include <fmt/format.h>

#include <map>

#include "runner/lua/strategy_file.hpp"
#include "runner/selection/script_strategy.hpp"
#include "strategies/reducers/built_in.hpp"

namespace runner {

using nlohmann::json;

namespace {

constexpr const char* options_option = "ddp_comm_hook_options";

struct Hook {
  std::string name = "";
  std::vector<Option> options = {};
};

/// The hook that the recipe names, without a name if there is none. nullopt: the name or the file has a mistake.
std::optional<Hook> hook_of(const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  const auto& given = recipe.strategy.options;
  if (has_script_hook(given)) {
    lua::State state(lua::script_state_options(recipe));
    const auto place = recipe.origin(std::string("strategy.") + comm_hook_option);
    auto file = lua::load_comm_hook_file(state, given[comm_hook_option], place, diagnostics);
    return file ? std::optional(Hook{.name = file->name, .options = std::move(file->options)}) : std::nullopt;
  }
  json name = given.value(comm_hook_option, json());
  if (name.is_null()) return Hook();
  const auto* option = find_option(find_strategy("ddp")->entry->options, comm_hook_option);
  if (check_option(*option, name)) return std::nullopt;
  const auto* hook = find_comm_hook(name);
  return hook ? Hook{.name = hook->name, .options = hook->options} : Hook();
}

/// The key as the recipe has it: Lightning's `ddp_comm_state` is another name.
std::string key_in(const Recipe& recipe) {
  const auto place = recipe.origin(std::string("strategy.") + options_option);
  const bool state = (place.excerpt + place.file).find("ddp_comm_state") != std::string::npos;
  return state ? "ddp_comm_state" : options_option;
}

/// The mistake in the value as a whole; empty: none.
std::string mistake(const Hook& hook, const json& given, const std::string& key) {
  if (hook.name.empty()) return fmt::format("`{}` needs a `ddp_comm_hook`", key);
  if (hook.options.empty()) return fmt::format("the comm hook {} has no options: remove `{}`", hook.name, key);
  if (given.is_object()) return "";
  return fmt::format("`{}` must be a table such as {{ {} = {} }}, not {}", key, hook.options.front().name,
                     hook.options.front().default_value.is_null() ? "1" : hook.options.front().default_value.dump(),
                     given.dump());
}

/// Fields of PyTorch's states that have another form here, and what to do.
std::string hint(const std::string& field) {
  static const std::map<std::string, std::string> hints = {
      {"process_group", "remove it: a comm hook uses the ranks of the run"},
      {"subgroup", "here it is `subgroup_size`, the number of neighbouring ranks"},
      {"warmup_steps", "here it is `start_localSGD_iter`"}};
  const auto found = hints.find(field);
  return found == hints.end() ? "" : "; " + found->second;
}

}  // namespace

json comm_hook_options(const Recipe& recipe, std::vector<Diagnostic>& diagnostics, std::vector<std::string>* notes) {
  const auto given = recipe.strategy.options.value(options_option, json());
  const auto place = recipe.origin(std::string("strategy.") + options_option);
  const auto hook = hook_of(recipe, diagnostics);
  if (!hook) return json::object();
  const bool other_type = given.is_number() || given.is_array();  // which the check of the option says
  if (given.is_null() || other_type) return with_defaults(hook->options, json::object());
  const bool nothing = given.is_object() && given.empty();
  if (auto message = mistake(*hook, given, key_in(recipe)); !message.empty() && !nothing) {
    diagnostics.push_back({.place = place, .code = "wrong-value", .message = message, .section = "strategy"});
    return json::object();
  }
  for (const auto& [name, value] : given.items())
    if (const auto* option = find_option(hook->options, name); notes && option && !option->note.empty())
      notes->push_back(fmt::format("`{}`: {}", name, option->note));
  const size_t before = diagnostics.size();
  auto complete = lua::complete_options(
      {.noun = "comm hook", .name = hook->name, .section = "strategy"}, hook->options, given,
      [&](const std::string&) { return place; }, diagnostics);
  for (size_t i = before; i < diagnostics.size(); ++i)
    for (const auto& [name, value] : given.items())
      if (diagnostics[i].message.ends_with("`" + name + "`")) diagnostics[i].message += hint(name);
  return complete;
}

}  // namespace runner
