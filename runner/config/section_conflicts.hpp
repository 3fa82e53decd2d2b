// Contradictions in an elastic run's numbers of nodes, and of data.streaming and [plugins] with other keys.
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

// Other keys that decide what a plug-in in [plugins] decides.

struct PluginConflict {
  std::string key;  ///< with its section
  std::string message;
  std::string other;  ///< key, with its section
};

std::vector<PluginConflict> plugin_conflicts(const Recipe& recipe);

// The keys that data.streaming cannot be combined with.

struct StreamingConflict {
  std::string key;      ///< the other key
  std::string message;  ///< the reason, and what to do
};

/// Empty without data.streaming.
std::vector<StreamingConflict> streaming_conflicts(const Recipe& recipe);

}  // namespace runner
