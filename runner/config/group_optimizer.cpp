#include "runner/config/group_optimizer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/glob.hpp"
#include "runner/config/key_table.hpp"

namespace runner {

Recipe::Optimizer defaults_of(const OptimizerSpec& optimizer) {
  Recipe::Optimizer defaults;
  defaults.name = optimizer.name;
  defaults.betas = {optimizer.betas.begin(), optimizer.betas.end()};
  defaults.momentum = optimizer.momentum;
  defaults.nesterov = optimizer.nesterov;
  return defaults;
}

Recipe::Optimizer optimizer_of(const Recipe::Optimizer& given, const Recipe::Optimizer::Group& group) {
  if (group.own.empty()) return given;
  const auto* other = find_optimizer(group.own.value("name", given.name));
  Recipe recipe;
  recipe.optimizer = given;
  if (other && other->name != given.name) {
    recipe.optimizer = defaults_of(*other);
    recipe.optimizer.lr = given.lr;
    recipe.optimizer.weight_decay = given.weight_decay;
    recipe.optimizer.decay_norms_and_biases = given.decay_norms_and_biases;
  }
  for (const auto& [option, value] : group.own.items()) find_key("optimizer", option)->set(recipe, value);
  return recipe.optimizer;
}

Recipe::Optimizer optimizer_of(const Recipe::Optimizer& given, const std::string& parameter) {
  for (const auto& group : given.groups)
    if (std::ranges::any_of(group.patterns(), [&](const auto& one) { return glob_matches(one, parameter); }))
      return optimizer_of(given, group);
  return given;
}

std::vector<GroupConflict> group_conflicts(const Recipe::Optimizer& given, const Recipe::Optimizer::Group& group) {
  const auto own = optimizer_of(given, group);
  const auto *spec = find_optimizer(own.name), *common = find_optimizer(given.name);
  std::vector<GroupConflict> conflicts;
  if (group.own.empty() || !spec || !common) return conflicts;
  for (const auto& [key, value] : group.own.items())
    if (key != "name" && std::ranges::find(spec->keys, key) == spec->keys.end())
      conflicts.push_back({fmt::format("sets {}, which {} does not read", key, spec->name), spec->keys});
  if (own.nesterov && own.momentum == 0) conflicts.push_back({"has nesterov = true, which needs momentum above 0"});
  if (spec->averages || common->averages)
    conflicts.push_back(
        {fmt::format("cannot have an optimizer or options of its own with {}: it averages weights, so all parameters "
                     "have the same",
                     spec->averages ? spec->name : common->name),
         optimizer_names([](const auto& one) { return !one.averages; })});
  return conflicts;
}

}  // namespace runner
