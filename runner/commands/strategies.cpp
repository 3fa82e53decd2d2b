// `runner strategies`.
#include <algorithm>
#include <cstdio>
#include <memory>

#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/config/config.hpp"
#include "runner/lua/strategy_file.hpp"
#include "runner/report/table.hpp"
#include "runner/selection/script_strategy.hpp"
#include "runner/selection/strategy_options.hpp"
#include "strategies/catalog.hpp"

namespace runner {

namespace {

nlohmann::json option_json(const OptionSpec& option) {
  static const char* names[] = {"boolean", "integer", "number", "string", "choice", "duration", "names", "table"};
  nlohmann::json json = {{"name", option.name},
                         {"type", names[static_cast<int>(option.type)]},
                         {"default", option.default_value},
                         {"help", option.help}};
  if (!option.choices.empty()) json["choices"] = option.choices;
  if (!option.note.empty()) json["note"] = option.note;
  return json;
}

std::vector<OptionSpec> all_options(const Entry& entry) {
  auto options = entry.options;
  if (entry.distributed && entry.unavailable.empty())
    options.insert(options.end(), common_options().begin(), common_options().end());
  return options;
}

nlohmann::json entry_json(const Entry& entry) {
  nlohmann::json aliases = nlohmann::json::array(), options = nlohmann::json::array();
  for (const auto& alias : entry.aliases) aliases.push_back(alias.name);
  for (const auto& option : all_options(entry)) options.push_back(option_json(option));
  return {{"name", entry.name},
          {"aliases", aliases},
          {"summary", entry.summary},
          {"options", options},
          {"available", entry.unavailable.empty()},
          {"unavailable_reason", entry.unavailable.empty() ? nlohmann::json() : nlohmann::json(entry.unavailable)}};
}

/// The aliases by what differs from the original of that name: each difference once, in the order of the first.
void print_aliases(const Entry& entry) {
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const auto& alias : entry.aliases) {
    auto same = [&](const auto& group) { return group.first == alias.difference; };
    auto group = std::find_if(groups.begin(), groups.end(), same);
    if (group == groups.end()) group = groups.insert(groups.end(), {alias.difference, {}});
    group->second.push_back(alias.preset.empty() ? alias.name : alias.name + " = " + toml_value(alias.preset));
  }
  for (const auto& [difference, names] : groups) {
    for (const auto& name : names) std::printf("  alias %s\n", name.c_str());
    if (!difference.empty()) std::printf("    (%s)\n", difference.c_str());
  }
}

/// The summary, and for what does not work why, and what to take instead.
std::string summary(const Entry& entry) {
  if (entry.unavailable.empty()) return entry.summary;
  std::string reason = entry.unavailable;
  reason[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(reason[0])));
  return entry.summary + " " + reason + ".";
}

void print_entry(const Entry& entry) {
  std::printf("%s: %s\n", entry.name.c_str(), summary(entry).c_str());
  print_aliases(entry);
  std::vector<std::vector<std::string>> rows;
  for (const auto& option : all_options(entry)) {
    std::string help = option.help;
    if (!option.choices.empty()) help += " One of " + join(option.choices, ", ") + ".";
    if (!option.note.empty()) help += " " + option.note + ".";
    rows.push_back({option.name, option.default_value.is_null() ? "-" : option.default_value.dump(), help});
  }
  if (!rows.empty())
    std::printf("%s", format_table({{"option"}, {"default"}, {"what it does", false, true}}, rows).c_str());
}

}  // namespace

Action setup_strategies(CLI::App& app) {
  auto name = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  auto registry = std::make_shared<std::string>();
  app.add_option("name", *name, "A strategy, an alias or lua:FILE.lua: show its options");
  app.add_option("--registry", *registry, "A file of Lua that registers strategies, as strategy.registry names it");
  app.add_flag("--json", *json, "As JSON");
  return [name, json, registry] {
    std::vector<const Entry*> shown, registered;
    if (!registry->empty()) registered = learn_registered_strategies(*registry);
    if (name->empty()) {
      for (const auto& entry : catalog()) shown.push_back(&entry);
      for (const auto& [shipped, text] : lua::shipped_strategies())
        shown.push_back(learn_script_strategy("lua:" + shipped));
      shown.insert(shown.end(), registered.begin(), registered.end());
    } else {
      if (lua::names_script(*name)) learn_script_strategy(*name);
      auto found = find_strategy(*name);
      if (!found) {
        auto names = strategy_names();
        for (const auto* entry : registered) names.push_back(entry->name);
        auto near = nearest(*name, names);
        throw usage_error("unknown strategy `{}`{}", *name, near ? "; did you mean `" + *near + "`?" : "");
      }
      shown.push_back(found->entry);
    }
    if (*json) {
      nlohmann::json list = nlohmann::json::array();
      for (const auto* entry : shown) list.push_back(entry_json(*entry));
      std::printf("%s\n", nlohmann::json{{"schema", 1}, {"strategies", list}}.dump(2).c_str());
    } else if (!name->empty()) {
      print_entry(*shown[0]);
    } else {
      std::vector<std::vector<std::string>> rows;
      for (const auto* entry : shown)
        rows.push_back({entry->name, entry->unavailable.empty() ? "yes" : "no", summary(*entry)});
      std::printf("%s", format_table({{"strategy"}, {"available"}, {"summary", false, true}}, rows).c_str());
    }
    return ExitCode::done;
  };
}

}  // namespace runner
