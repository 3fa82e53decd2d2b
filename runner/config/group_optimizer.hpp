// The optimizers of groups of parameters ([[optimizer.groups]] with `name` or options of an optimizer).
#pragma once
#include "runner/config/recipe.hpp"
#include "strategies/optimizer/optimizer_spec.hpp"

namespace runner {

/// The default of each option.
Recipe::Optimizer defaults_of(const OptimizerSpec& optimizer);
/// [optimizer] as a group has it. Options that the group does not set are those of [optimizer] if it is the same optimizer, and otherwise
/// the defaults of the group's. lr, weight_decay and decay_norms_and_biases are always those of [optimizer], never the group's.
Recipe::Optimizer optimizer_of(const Recipe::Optimizer& given, const Recipe::Optimizer::Group& group);
/// [optimizer] as the first group that matches the parameter has it.
Recipe::Optimizer optimizer_of(const Recipe::Optimizer& given, const std::string& parameter);

struct GroupConflict {
  std::string message;  ///< after "the group NAME"
  std::vector<std::string> allowed = {};
};
/// Options that the group's optimizer does not read, and optimizers that a group cannot have.
std::vector<GroupConflict> group_conflicts(const Recipe::Optimizer& given, const Recipe::Optimizer::Group& group);

}  // namespace runner
