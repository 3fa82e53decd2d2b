#include "runner/selection/script_optimizer.hpp"

#include <algorithm>
#include <utility>

#include "runner/base/text.hpp"
#include "runner/config/contradictions.hpp"
#include "runner/config/group_optimizer.hpp"
#include "runner/config/key_table.hpp"
#include "runner/selection/parameter_patterns.hpp"

namespace runner {

using nlohmann::json;

namespace {

const Key& groups_key() { return *find_key("optimizer.groups"); }

/// The keys of the last group.
std::vector<std::string> common_keys(const Recipe& recipe) {
  std::vector<std::string> keys{"lr", "weight_decay"};
  for (const auto& key : find_optimizer(recipe.optimizer.name)->keys)
    if (key != "momentum" && key != "ns_steps") keys.push_back(key);
  return keys;
}

json groups_for_script(const Recipe& recipe) {
  json groups = groups_key().get(recipe);
  if (!groups.is_array()) groups = json::array();
  for (auto& group : groups)
    if (auto pattern = group.find("pattern"); pattern != group.end()) {
      group["params"] = json::array({*pattern});
      group.erase("pattern");
    }
  json rest = json::object();
  for (const auto& name : common_keys(recipe)) rest[name] = find_key("optimizer", name)->get(recipe);
  groups.push_back(rest);
  return groups;
}

/// The mistakes of one call.
class Mistakes {
 public:
  Mistakes(const Recipe& recipe) : place_(recipe.origin("strategy.name")) {}
  void add(const std::string& message, const std::vector<std::string>& allowed = {},
           const std::optional<std::string>& suggestion = {}) {
    list_.push_back({.place = place_,
                     .code = "setup-optimizer",
                     .message = "`setup_optimizer`: " + message,
                     .allowed = allowed,
                     .suggestion = suggestion});
  }
  void throw_any() const {
    if (!list_.empty()) throw RecipeError(list_);
  }

 private:
  Origin place_;
  std::vector<Diagnostic> list_;
};

/// Sets keys of [optimizer] from the last group.
void take_rest(Recipe& recipe, const json& rest, Mistakes& mistakes) {
  const auto keys = common_keys(recipe);
  for (const auto& [name, given] : rest.items()) {
    if (std::ranges::find(keys, name) == keys.end()) {
      mistakes.add(fmt::format("the group of all other parameters has no `{}`; {} has {}", name, recipe.optimizer.name,
                               join(keys, ", ")),
                   keys, nearest(name, keys));
      continue;
    }
    const Key& key = *find_key("optimizer", name);
    json value = given;
    if (const auto problem = check_value(key, value))
      mistakes.add("in the group of all other parameters, " + problem->message);
    else
      key.set(recipe, value);
  }
}

/// Contradictions that `before` did not have.
void add_contradictions(const Recipe& before, const Recipe& changed, Mistakes& mistakes) {
  std::vector<Diagnostic> old, found;
  find_contradictions(before, old);
  find_contradictions(changed, found);
  for (const auto& one : found)
    if (std::ranges::find(old, one.message, &Diagnostic::message) == old.end()) mistakes.add(one.message);
}

/// The options of an optimizer that the planner has counted on.
std::vector<std::pair<std::string, json>> planned_options(const Recipe::Optimizer& optimizer) {
  std::vector<std::pair<std::string, json>> options;
  options.emplace_back("name", optimizer.name);
  options.emplace_back("momentum", optimizer.momentum);
  options.emplace_back("ns_steps", optimizer.ns_steps);
  return options;
}

/// Reports the first parameter for which the script has changed an option that the planner has counted on.
void keep_optimizers(const Recipe& before, const Recipe& changed, const ModelSpec& model, Mistakes& mistakes) {
  for (const auto* parameter : model.parameters()) {
    const auto old = planned_options(optimizer_of(before.optimizer, parameter->name)),
               own = planned_options(optimizer_of(changed.optimizer, parameter->name));
    for (size_t i = 0; i < old.size(); ++i) {
      const auto& [option, was] = old[i];
      const json& became = own[i].second;
      if (was == became) continue;
      mistakes.add(
          fmt::format("`{}` of `{}`'s optimizer was {}, and became {}: a recipe sets name, momentum and ns_steps of a "
                      "group's optimizer, because the planner needs them",
                      option, parameter->name, was.dump(), became.dump()));
      return;
    }
  }
}

}  // namespace

Recipe with_script_optimizer(const Recipe& given, const Entry& entry, const json& options, const ModelSpec& model) {
  if (!entry.setup_optimizer) return given;
  Recipe recipe = given;
  Mistakes mistakes(recipe);
  json groups = entry.setup_optimizer(groups_for_script(recipe), options);
  const auto is_rest = [](const json& group) {
    return group.is_object() && !group.contains("params") && !group.contains("pattern");
  };
  const bool is_list = groups.is_array() && std::ranges::all_of(groups, &json::is_object);
  if (!is_list || std::ranges::count_if(groups, is_rest) != 1)
    mistakes.add("the result must be a list of groups, one of them without `params`, for all other parameters; not " +
                 groups.dump());
  mistakes.throw_any();
  const auto rest = std::ranges::find_if(groups, is_rest);
  take_rest(recipe, *rest, mistakes);
  groups.erase(rest);
  if (const auto problem = check_value(groups_key(), groups))
    mistakes.add(problem->message, problem->allowed, problem->suggestion);
  mistakes.throw_any();
  groups_key().set(recipe, groups);
  keep_optimizers(given, recipe, model, mistakes);
  std::vector<Diagnostic> unmatched;
  check_parameter_patterns(recipe, model, unmatched);
  for (const auto& one : unmatched) mistakes.add(one.message, one.allowed, one.suggestion);
  add_contradictions(given, recipe, mistakes);
  mistakes.throw_any();
  return recipe;
}

}  // namespace runner
