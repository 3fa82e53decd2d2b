#include "runner/selection/strategy_options.hpp"

#include <algorithm>
#include <span>
#include <string_view>

#include "runner/base/foreign_json.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/mesh_sizes.hpp"
#include "runner/config/unknown_names.hpp"
#include "runner/lua/hook_set.hpp"
#include "runner/lua/key_places.hpp"
#include "runner/lua/strategy_file.hpp"
#include "runner/selection/comm_hook_options.hpp"
#include "runner/selection/data_fit.hpp"
#include "runner/selection/mesh_plan.hpp"
#include "runner/selection/rules.hpp"
#include "runner/selection/script_strategy.hpp"
#include "strategies/reducers/built_in.hpp"

namespace runner {

namespace {

/// Strategies that can run here and have an option of this name.
std::vector<std::string> owners(const std::string& option) {
  std::vector<std::string> names;
  for (const auto& entry : catalog())
    if (entry.unavailable.empty() && find_option(entry.options, option)) names.push_back("`" + entry.name + "`");
  return names;
}

/// The nearest option has priority over names of other tools.
void answer_option(Diagnostic& diagnostic, const std::string& name, const Recipe& recipe,
                   const std::vector<std::string>& known, const std::string& in_help) {
  diagnostic.allowed = known;
  diagnostic.suggestion = nearest(name, known);
  if (!diagnostic.suggestion)
    answer_unknown(diagnostic, name, recipe.strategy.options.at(name), known, in_help, find_argument);
}

/// The options of `entries`, those of every strategy, and the keys of [strategy].
std::vector<std::string> option_names(std::span<const Entry> entries) {
  std::vector<std::string> names;
  for (const auto& entry : entries)
    for (const auto& option : entry.options) names.push_back(option.name);
  for (const auto& option : common_options()) names.push_back(option.name);
  for (const auto& key : key_table())
    if (key.section == "strategy" && key.name != "name") names.push_back(key.name);
  return names;
}

Diagnostic unknown_option(const Recipe& recipe, const Entry& entry, const std::string& name) {
  const auto elsewhere = owners(name);
  Diagnostic diagnostic{
      .place = recipe.origin("strategy." + name),
      .code = "unknown-option",
      .message = elsewhere.empty()
                     ? fmt::format("strategy `{}` has no option `{}`", entry.name, shortened_text(name))
                     : fmt::format("`{}` is an option of {}, not of `{}`", name, join_or(elsewhere), entry.name)};
  answer_option(diagnostic, name, recipe, option_names({&entry, 1}), "runner strategies " + entry.name);
  return diagnostic;
}

/// Names the strategies that have an option which the recipe sets outside [strategy]. The reader does not know the
/// options, and reports an unknown key.
void name_owners(std::vector<Diagnostic>& diagnostics) {
  for (auto& diagnostic : diagnostics) {
    const auto strategies = owners(diagnostic.name);
    if (strategies.empty() || key_meant_by(diagnostic.name, find_argument)) continue;
    diagnostic.message += fmt::format(": it is an option of {}", join_or(strategies));
    diagnostic.suggestion = "strategy." + diagnostic.name;
    diagnostic.section = "strategy";
  }
}

/// The recipe's words for names of forms of parallelism, which are axes of the mesh here, and of base classes.
struct Hint {
  std::vector<std::string_view> names;  ///< in lower case, without '_' and '-'
  std::string_view text;
};

const std::vector<Hint>& hints() {
  static const std::vector<Hint> list = {
      {.names = {"contextparallel", "cp", "ring", "ringattention", "ulysses"},
       .text = "context parallelism is an axis that any strategy can have: devices.mesh = { context = 2 }, with "
               "strategy.context_parallel = \"gather\", \"ring\" or \"ulysses\""},
      {.names = {"sequenceparallel", "sp"},
       .text = "Megatron's sequence parallelism is strategy.sequence_parallel = true, the default with a tensor axis; "
               "DeepSpeed's is devices.mesh = { context = 2 } with strategy.context_parallel = \"ulysses\""},
      {.names = {"megatron", "megatronlm", "megatronstrategy", "torchtitan", "nanotron", "3d", "3dparallel", "2d"},
       .text = "any strategy can have several axes: strategy = \"fsdp\" with devices.mesh = { pipeline = 2, shard = 2, "
               "tensor = 2 }"},
      {.names = {"strategy", "parallelstrategy"},
       .text = "it is a base class in Lightning; a strategy of your own is strategy = \"lua:FILE.lua\", with base = "
               "\"single\", \"ddp\", \"fsdp\" or \"zero\" (strategies/README.md)"},
      {.names = {"hsdp"},
       .text = "it is strategy = \"fsdp\" with devices.mesh = { replicate = 2, shard = 4 }, or with sharding_strategy "
               "= \"HYBRID_SHARD\""}};
  return list;
}

/// "context parallelism is an axis of the mesh ..."; empty if `name`, which is no strategy, names none of these.
std::string parallelism_hint(const std::string& name) {
  std::string plain = lower(name);
  std::erase_if(plain, [](char c) { return c == '_' || c == '-'; });
  for (const auto& hint : hints())
    if (std::ranges::find(hint.names, plain) != hint.names.end()) return std::string(hint.text);
  return "";
}

/// Checks `value` and converts it, as check_option() does.
void check_given(const Recipe& recipe, const Option& option, nlohmann::json& value,
                 std::vector<Diagnostic>& diagnostics) {
  if (const auto problem = check_option(option, value))
    diagnostics.push_back(diagnostic_of(*problem, recipe.origin("strategy." + option.name)));
}

/// An option that differs from what the name of the strategy means.
Diagnostic against_name(const Recipe& recipe, const Named& named, const std::string& option,
                        const nlohmann::json& meant) {
  return {.place = recipe.origin("strategy." + option),
          .code = "contradiction",
          .message =
              fmt::format("`{}` means {} = {}, and {} = {} contradicts it: choose one of them, or write name = \"{}\"",
                          recipe.strategy.name, option, toml_value(meant), option,
                          toml_value(recipe.strategy.options.at(option)), named.entry->name),
          .other = recipe.origin("strategy.name"),
          .other_message = "the name is set here",
          .section = "strategy"};
}

/// Reports required options that the recipe lacks.
void require_options(const Recipe& recipe, const Entry& entry, std::vector<Diagnostic>& diagnostics) {
  for (const auto& option : entry.options)
    if (option.required && !recipe.strategy.options.contains(option.name))
      diagnostics.push_back(
          {.place = recipe.origin("strategy.name"),
           .code = "missing-key",
           .message = fmt::format("strategy `{}` needs `{}`: {}", entry.name, option.name, option.help),
           .section = "strategy"});
}

/// Adds the options that devices.mesh asks for. Reports those of the recipe that differ.
void follow_mesh(const Recipe& recipe, const Entry& entry, nlohmann::json& options,
                 std::vector<Diagnostic>& diagnostics) {
  const auto of_groups = options_of_groups(recipe, entry);
  for (const auto& [name, meant] : of_groups.items()) {
    if (const auto given = options.find(name); given != options.end() && *given != meant)
      diagnostics.push_back({.place = recipe.origin("strategy." + name),
                             .code = "contradiction",
                             .message = fmt::format("{} = {}, but devices.mesh means {} = {}", name, toml_value(*given),
                                                    name, toml_value(meant)),
                             .other = recipe.origin("devices.mesh"),
                             .other_message = "the mesh is set here",
                             .section = "strategy"});
    options[name] = meant;
  }
}

/// Reports a configuration of another tool that the reader did not translate, because the strategy does not take it.
void refuse_configuration(const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  diagnostics.push_back({recipe.origin("strategy.config"), "needs", deepspeed_needed});
}

/// Checks the options with name = "auto", which chooses among the strategies that have all of them.
void check_given_options(const Recipe& recipe, nlohmann::json& options, std::vector<Diagnostic>& diagnostics) {
  if (recipe.strategy.options.contains("config")) return refuse_configuration(recipe, diagnostics);
  std::vector<std::string> given;
  for (const auto& [name, item] : recipe.strategy.options.items()) {
    nlohmann::json value = item;
    given.push_back("`" + name + "`");
    const StrategyOption* option = find_option(common_options(), name);
    for (const auto& entry : catalog())
      if (!option) option = find_option(entry.options, name);
    if (option) {
      check_given(recipe, *option, value, diagnostics);
      options[name] = value;
      continue;
    }
    Diagnostic diagnostic{recipe.origin("strategy." + name), "unknown-option",
                          fmt::format("no strategy has an option `{}`", shortened_text(name))};
    auto known = option_names(catalog());
    std::ranges::sort(known);
    known.erase(std::unique(known.begin(), known.end()), known.end());
    answer_option(diagnostic, name, recipe, known, "runner strategies NAME");
    diagnostics.push_back(diagnostic);
    return;
  }
  bool together = std::any_of(catalog().begin(), catalog().end(), [&](const Entry& entry) {
    const auto& options = recipe.strategy.options.items();
    return entry.unavailable.empty() &&
           std::all_of(options.begin(), options.end(), [&](const auto& item) { return takes(entry, item.key()); });
  });
  if (together) return;
  diagnostics.push_back({recipe.origin("strategy." + recipe.strategy.options.begin().key()), "contradiction",
                         fmt::format("no strategy takes {} together", join(given, " and "))});
}

/// Whether no mistake so far may be the cause of a wrong length.
bool lengths_are_sound(const std::vector<Diagnostic>& diagnostics) {
  return std::none_of(diagnostics.begin(), diagnostics.end(), [](const Diagnostic& diagnostic) {
    const auto& section = diagnostic.section;
    return diagnostic.code != "contradiction" && (section.empty() || section == "model" || section == "data");
  });
}

/// A strategy of the built-in catalog.
std::optional<Named> find_built_in(const std::string& name) {
  auto named = find_listed_strategy(name);
  if (named) forget_strategy(name);  // what another recipe's registry put in its place
  return named;
}

/// Reports built-in strategies that the registry replaces or removes: "auto" chooses among all of them, as they are built in.
void refuse_changed_choices(const Recipe& recipe, const lua::RegisteredNames& names,
                            std::vector<Diagnostic>& diagnostics) {
  const auto refuse = [&](const std::vector<std::string>& changed, const char* verb) {
    for (const auto& name : changed) {
      const auto known = find_listed_strategy(name);
      if (!known || !known->entry->unavailable.empty()) continue;
      diagnostics.push_back(
          {.place = recipe.origin("strategy.name"),
           .code = "contradiction",
           .message = fmt::format("strategy.name = \"auto\" chooses among the built-in strategies, and "
                                  "{} {} `{}`: name a strategy, or remove strategy.registry",
                                  recipe.strategy.options.at("registry").get<std::string>(), verb, name),
           .other = recipe.origin("strategy.registry"),
           .other_message = "the registry is named here",
           .section = "strategy"});
    }
  };
  refuse(names.registered, "replaces");
  refuse(names.removed, "removes");
}

/// The strategy that the recipe names: a built-in one, one in a Lua file, or one that a Lua file registers.
std::optional<Named> find_named(const Recipe& recipe, std::vector<Diagnostic>& diagnostics,
                                std::vector<std::string>& registered) {
  lua::RegisteredNames names;
  const auto& name = recipe.strategy.name;
  bool registry = recipe.strategy.options.contains("registry");
  if (!lua::names_script(name) && !registry) return name == "auto" ? std::nullopt : find_built_in(name);
  const auto* entry = learn_script_strategy(recipe, diagnostics, &names);
  registered = names.registered;
  if (name == "auto") {
    refuse_changed_choices(recipe, names, diagnostics);
    return {};
  }
  if (entry) return Named{entry};
  const auto is_removed = [&](const std::string& removed) { return lower(removed) == lower(name); };
  if (std::ranges::any_of(names.removed, is_removed)) {
    diagnostics.push_back({recipe.origin("strategy.name"), "unknown-strategy",
                           fmt::format("the strategy `{}` is removed by {} (strategy.registry)", name,
                                       recipe.strategy.options.at("registry").get<std::string>())});
    return {};
  }
  return lua::names_script(name) ? std::nullopt : find_built_in(name);
}

}  // namespace

bool takes(const Entry& entry, const std::string& option) {
  return find_option(entry.options, option) || (entry.distributed && find_option(common_options(), option));
}

ReaderHelp reader_help() {
  return {.evaluate = lua::evaluate_recipe, .importer = &deepspeed_importer(), .names = find_argument};
}

const std::vector<StrategyOption>& common_options() {
  using Type = Option::Type;
  static const auto options = [] {
    Option backend = *find_key("devices.process_group_backend");
    auto list =
        strategy_options({{.name = "timeout",
                           .type = Type::duration,
                           .help = "How long a collective may take before the run stops; default train.timeout."},
                          {.name = "registry",
                           .type = Type::text,
                           .help = "A Lua file that registers names of strategies; relative to the recipe."},
                          backend});
    need(list, {"timeout", backend.name}, only_among_ranks());
    return list;
  }();
  return options;
}

ResolvedStrategy resolve_strategy(const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  ResolvedStrategy resolved;
  std::vector<std::string> registered;
  size_t before = diagnostics.size();
  auto named = find_named(recipe, diagnostics, registered);
  Diagnostic diagnostic;
  diagnostic.place = recipe.origin("strategy.name");
  if (recipe.strategy.name == "auto") {
    check_given_options(recipe, resolved.options, diagnostics);
    comm_hook_options(recipe, diagnostics, &resolved.notes);
    return resolved;
  }
  if (!named && (lua::names_script(recipe.strategy.name) || diagnostics.size() > before)) return resolved;
  if (!named) {
    diagnostic.code = "unknown-strategy";
    diagnostic.message = fmt::format("unknown strategy `{}`", shortened_text(recipe.strategy.name));
    if (const auto hint = parallelism_hint(recipe.strategy.name); !hint.empty()) {
      diagnostic.message += ": " + hint;
      diagnostics.push_back(diagnostic);
      return resolved;
    }
    for (const auto& entry : catalog())
      if (entry.unavailable.empty()) diagnostic.allowed.push_back(entry.name);
    diagnostic.allowed.push_back("auto");
    diagnostic.allowed.insert(diagnostic.allowed.end(), registered.begin(), registered.end());
    auto names = strategy_names();
    names.insert(names.end(), registered.begin(), registered.end());
    names.push_back("auto");
    diagnostic.suggestion = nearest_strategy(recipe.strategy.name, names);
    diagnostics.push_back(diagnostic);
    return resolved;
  }
  resolved.entry = named->entry;
  const bool simulated = recipe.devices.simulate && named->entry->plan;
  if (!named->entry->unavailable.empty() && !simulated) {
    diagnostic.code = "unavailable";
    diagnostic.message = fmt::format("strategy `{}` is {}", recipe.strategy.name, named->entry->unavailable);
    diagnostics.push_back(diagnostic);
    return resolved;
  }
  if (!named->entry->unavailable.empty())
    resolved.notes.push_back(
        fmt::format("strategy `{}` is simulated: CPU processes train replicas, as with `ddp`", recipe.strategy.name));
  if (named->alias && !named->alias->difference.empty())
    resolved.notes.push_back(
        fmt::format("`{}` runs as `{}`: {}", named->alias->name, named->entry->name, named->alias->difference));
  resolved.options = named->preset;
  for (const auto& [name, given] : recipe.strategy.options.items()) {
    nlohmann::json value = given;
    const StrategyOption* option = find_option(named->entry->options, name);
    if (!option || name == "registry") option = find_option(common_options(), name);
    if (!option) {
      diagnostics.push_back(unknown_option(recipe, *named->entry, name));
      continue;
    }
    check_given(recipe, *option, value, diagnostics);
    if (auto preset = named->preset.find(name); preset != named->preset.end() && *preset != value)
      diagnostics.push_back(against_name(recipe, *named, name, *preset));
    if (!option->note.empty()) resolved.notes.push_back(fmt::format("`{}`: {}", name, option->note));
    resolved.options[name] = value;
  }
  require_options(recipe, *named->entry, diagnostics);
  follow_mesh(recipe, *named->entry, resolved.options, diagnostics);
  if (resolved.options.contains("config")) refuse_configuration(recipe, diagnostics);
  if (find_option(named->entry->options, comm_hook_option)) comm_hook_options(recipe, diagnostics, &resolved.notes);
  return resolved;
}

std::vector<std::string> idle_options(const nlohmann::json& given, const Entry& entry, const Job& job) {
  std::vector<std::string> notes;
  for (const auto& [name, value] : given.items()) {
    const StrategyOption* option = find_option(entry.options, name);
    if (!option) option = find_option(common_options(), name);
    bool off = value == false || value == "none" || value == "NONE";
    if (!option || off || !option->only_with.holds || option->only_with.holds(job)) continue;
    notes.push_back(fmt::format("`{}`: nothing to do here: it needs {}", name, option->only_with.what));
  }
  return notes;
}

Recipe load_whole_recipe(const std::string& file, const std::vector<std::string>& overrides,
                         const RecipeCheck& further) {
  return load_whole_layered_recipe(file, {overrides}, further);
}

Recipe load_whole_layered_recipe(const std::string& file, const OverrideLayers& overrides, const RecipeCheck& further) {
  auto check = [&](const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
    name_owners(diagnostics);
    if (lengths_are_sound(diagnostics)) check_lengths(recipe, diagnostics);
    resolve_strategy(recipe, diagnostics);
    if (lengths_are_sound(diagnostics)) check_division(recipe, given_mesh(recipe), diagnostics);
    lua::check_hooks(recipe, diagnostics);
    if (further) further(recipe, diagnostics);
  };
  return load_layered_recipe(file, overrides, check, reader_help());
}

Origin refused_at(const Recipe& recipe, const std::string& why) {
  if (const auto key = why.substr(0, why.find(' ')); key.find('.') != std::string::npos && recipe.origins.contains(key))
    return recipe.origin(key);
  auto part_of_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (size_t from = 0, to; from < why.size(); from = to + 1) {
    to = std::find_if_not(why.begin() + static_cast<long>(from), why.end(), part_of_name) - why.begin();
    const std::string word = why.substr(from, to - from);
    // "name" is also that of an optimizer.
    if (word != "name" && recipe.origins.contains("strategy." + word)) return recipe.origin("strategy." + word);
  }
  return recipe.origin("strategy.name");
}

std::optional<std::string> note_on_late_reducer(const Recipe& recipe, const Entry& entry, const Job& job) {
  const auto last = recipe.train.max_steps;
  if (!last || !entry.plan) return std::nullopt;
  const auto plan = entry.plan(job);
  const auto* reducer = find_reducer(plan.reducer.name);
  if (!reducer || !reducer->late_start) return std::nullopt;
  const auto first = reducer->late_start->first_step(plan.reducer.options);
  if (first <= *last) return std::nullopt;
  return fmt::format("`{}` {} from step {} on ({}), and the run ends at step {}: it has no effect", reducer->name,
                     reducer->late_start->does, first, reducer->late_start->option, *last);
}

}  // namespace runner
