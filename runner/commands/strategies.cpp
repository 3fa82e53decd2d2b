// `runner strategies`: lists strategies, or the options of one.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/config/config.hpp"
#include "runner/config/key_table.hpp"
#include "runner/devices/devices.hpp"
#include "runner/lua/strategy_file.hpp"
#include "runner/report/table.hpp"
#include "runner/selection/script_strategy.hpp"
#include "runner/selection/strategy_options.hpp"
#include "strategies/catalog.hpp"
#include "strategies/reducers/built_in.hpp"

namespace runner {

namespace {

/// Whether the option has an effect only on CUDA devices.
bool needs_cuda(const Entry& entry, const StrategyOption& option) {
  Job cpu, cuda;
  cpu.options = cuda.options = with_defaults(entry.options, nlohmann::json::object());
  cuda.accelerator = cuda_accelerator();
  const auto& holds = option.only_with.holds;
  return holds && holds(cuda) && !holds(cpu);
}

bool has_cuda_devices() {
  static const bool found = [] {
    Facts facts = read_facts();
    return !facts.devices.empty() && facts.cuda_module;
  }();
  return found;
}

nlohmann::json option_json(const Entry& entry, const StrategyOption& option) {
  nlohmann::json json = {
      {"name", option.name}, {"type", type_name(option)}, {"default", option.default_value}, {"help", option.help}};
  if (!option.choices.empty()) json["choices"] = option.choices;
  if (!option.note.empty()) json["note"] = option.note;
  if (!option.only_with.what.empty()) json["only_with"] = option.only_with.what;
  json["works_here"] = !needs_cuda(entry, option) || has_cuda_devices();
  return json;
}

std::vector<StrategyOption> all_options(const Entry& entry) {
  auto options = entry.options;
  if (!entry.plan) return options;
  if (entry.distributed) options.insert(options.end(), common_options().begin(), common_options().end());
  for (const auto& key : key_table())
    if (key.section == "strategy" && key.name != "name") options.push_back({key});
  return options;
}

nlohmann::json reducer_json(const Entry& entry, const BuiltInReducer& hook) {
  nlohmann::json options = nlohmann::json::array();
  for (const auto& option : hook.options) options.push_back(option_json(entry, {option}));
  return {{"name", hook.name}, {"summary", hook.about}, {"options", options}};
}

nlohmann::json entry_json(const Entry& entry) {
  nlohmann::json aliases = nlohmann::json::array(), options = nlohmann::json::array();
  for (const auto& alias : entry.aliases) aliases.push_back(alias.name);
  for (const auto& option : all_options(entry)) options.push_back(option_json(entry, option));
  nlohmann::json reducers = nlohmann::json::array();
  for (const auto& reducer : reducers_of(entry.name).reducers) reducers.push_back(reducer_json(entry, reducer));
  return {{"name", entry.name},
          {"aliases", aliases},
          {"reducers", reducers},
          {"summary", entry.summary},
          {"options", options},
          {"available", entry.unavailable.empty()},
          {"unavailable_reason", entry.unavailable.empty() ? nlohmann::json() : nlohmann::json(entry.unavailable)}};
}

/// Each line with two spaces before it.
std::string indented(const std::string& text) {
  std::string result;
  for (const auto& line : split(text, '\n'))
    if (!line.empty()) result += "  " + line + "\n";
  return result;
}

std::string describe(const Alias& alias) {
  return alias.preset.empty() ? alias.name : alias.name + " = " + toml_value(alias.preset);
}

/// Prints all aliases except `shown`. Aliases with the same difference from the original are grouped.
void print_aliases(const Entry& entry, const Alias* shown) {
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const auto& alias : entry.aliases) {
    if (&alias == shown) continue;
    auto same = [&](const auto& group) { return group.first == alias.difference; };
    auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end()) group = groups.insert(groups.end(), {alias.difference, {}});
    group->second.push_back(describe(alias));
  }
  for (const auto& [difference, names] : groups) {
    for (const auto& name : names) std::printf("  alias %s\n", name.c_str());
    if (!difference.empty()) std::printf("    (%s)\n", difference.c_str());
  }
}

/// The summary. For a strategy that is not available, also the reason and the alternative.
std::string summary(const Entry& entry) {
  if (entry.unavailable.empty()) return entry.summary;
  std::string reason = entry.unavailable;
  reason[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(reason[0])));
  return entry.summary + " " + reason + ".";
}

/// Describes an option in the same form as `runner help recipe` describes a key.
std::string describe(const Entry& entry, const StrategyOption& option) {
  std::vector<std::string> facts;
  const bool own_type = option.type == Option::Type::other;
  const bool or_auto = option.type == Option::Type::integer_or_auto;
  facts.push_back(own_type                  ? option.wanted
                  : !option.choices.empty() ? join_or(option.choices)
                                            : type_name(option) + (or_auto ? " or \"auto\"" : ""));
  if (!option.default_value.is_null()) facts.push_back("default " + option.default_value.dump());
  if (!option.only_with.what.empty()) facts.push_back("only with " + option.only_with.what);
  if (needs_cuda(entry, option) && !has_cuda_devices()) facts.push_back("this machine has none");
  std::string text = fmt::format("  {}\n", option.name);
  for (const auto& line : {option.help, join(facts, "; "), option.note})
    if (!line.empty()) text += fmt::format("      {}\n", line);
  return text;
}

/// Prints the reducers of a strategy. Those with the same options are listed together.
void print_reducers(const Entry& entry) {
  const auto [heading, reducers] = reducers_of(entry.name);
  if (reducers.empty()) return;
  std::printf("%s:\n", heading.c_str());
  std::vector<std::string> names;
  std::string options;
  const auto print_options = [&] {
    if (!options.empty()) std::printf("    options of %s:\n%s", join(names, ", ").c_str(), options.c_str());
    names.clear();
  };
  for (const auto& hook : reducers) {
    std::string of_hook;
    for (const auto& option : hook.options) of_hook += indented(describe(entry, {option}));
    if (of_hook != options) print_options();
    options = of_hook;
    names.push_back(hook.name);
    std::printf("  %s: %s\n", hook.name.c_str(), hook.about.c_str());
  }
  print_options();
}

/// `alias`: the name that the user gave, if it is an alias.
void print_entry(const Entry& entry, const Alias* alias) {
  if (alias) {
    std::printf("%s: an alias of %s\n", describe(*alias).c_str(), entry.name.c_str());
    if (!alias->difference.empty()) std::printf("    (%s)\n", alias->difference.c_str());
  }
  std::printf("%s: %s\n", entry.name.c_str(), summary(entry).c_str());
  print_aliases(entry, alias);
  for (const auto& option : all_options(entry)) std::printf("%s", describe(entry, option).c_str());
  print_reducers(entry);
}

constexpr const char* about_auto =
    "Chooses one of the strategies for the model and the devices; `runner recommend RECIPE` shows what, and why, and "
    "[selection] has its settings (runner help recipe selection).";

/// "auto" is not a strategy, but a name that recipes use.
void print_auto(bool as_json) {
  if (!as_json) {
    std::printf("auto: %s\n", about_auto);
    return;
  }
  Entry entry;
  entry.name = "auto";
  entry.summary = about_auto;
  const auto list = nlohmann::json::array({entry_json(entry)});
  std::printf("%s\n", nlohmann::json{{"schema", 1}, {"strategies", list}}.dump(2).c_str());
}

}  // namespace

Action setup_strategies(CLI::App& app) {
  auto name = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  auto registry = std::make_shared<std::string>();
  app.add_option("name", *name, "A strategy, an alias or lua:FILE.lua: show its options");
  app.add_option("--registry", *registry, "A file of Lua that registers strategies, as strategy.registry names it");
  add_json_option(app, *json);
  return [name, json, registry] {
    if (*name == "auto") {
      print_auto(*json);
      return ExitCode::done;
    }
    std::vector<const Entry*> shown, registered;
    const Alias* alias = nullptr;
    std::vector<std::string> removed;
    if (!registry->empty()) registered = learn_registered_strategies(*registry, &removed);
    const auto is_removed = [&](const std::string& one) {
      return std::ranges::any_of(removed, [&](const auto& gone) { return lower(gone) == lower(one); });
    };
    const auto is_registered = [&](const std::string& one) {
      return std::ranges::any_of(registered, [&](const Entry* entry) { return entry->name == one; });
    };
    if (name->empty()) {
      for (const auto& entry : catalog())
        if (!is_removed(entry.name) && !is_registered(entry.name)) shown.push_back(&entry);
      for (const auto& [shipped, text] : lua::shipped_strategies())
        shown.push_back(learn_script_strategy("lua:" + shipped));
      shown.insert(shown.end(), registered.begin(), registered.end());
    } else {
      if (lua::names_script(*name)) learn_script_strategy(*name);
      auto found = find_strategy(*name);
      if (!found || (is_removed(*name) && !is_registered(*name))) {
        auto names = strategy_names();
        std::erase_if(names, is_removed);
        for (const auto* entry : registered) names.push_back(entry->name);
        auto near = nearest_strategy(*name, names);
        throw usage_error("unknown strategy `{}`{}", *name, near ? "; did you mean `" + *near + "`?" : "");
      }
      shown.push_back(found->entry);
      alias = found->alias;
    }
    if (*json) {
      nlohmann::json list = nlohmann::json::array();
      for (const auto* entry : shown) list.push_back(entry_json(*entry));
      std::printf("%s\n", nlohmann::json{{"schema", 1}, {"strategies", list}}.dump(2).c_str());
    } else if (!name->empty()) {
      print_entry(*shown[0], alias);
    } else {
      std::vector<std::vector<std::string>> rows;
      for (const auto* entry : shown)
        rows.push_back({entry->name, entry->unavailable.empty() ? "yes" : "no", summary(*entry)});
      const Column about = {.title = "summary", .may_shrink = true};
      std::printf("%s", format_table({{"strategy"}, {"available"}, about}, rows).c_str());
    }
    return ExitCode::done;
  };
}

}  // namespace runner
