// What contradicts the numbers of nodes of an elastic run.
#pragma once
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner {

struct NodeConflict {
  std::string key;      ///< of [devices]
  std::string message;  ///< why it cannot be so
  std::string other;    ///< the dotted key with which it is in conflict
};

/// Empty for a recipe without devices.min_nodes and max_nodes.
std::vector<NodeConflict> node_conflicts(const Recipe& recipe);

}  // namespace runner
