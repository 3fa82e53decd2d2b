// Other keys that decide what a plug-in in [plugins] decides.
#pragma once
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner {

struct PluginConflict {
  std::string key;  ///< with its section
  std::string message;
  std::string other;  ///< key, with its section
};

std::vector<PluginConflict> plugin_conflicts(const Recipe& recipe);

}  // namespace runner
