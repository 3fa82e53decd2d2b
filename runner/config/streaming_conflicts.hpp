// What data.streaming cannot be combined with.
#pragma once
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner {

struct StreamingConflict {
  std::string key;      ///< the other key
  std::string message;  ///< the reason, and what to do
};

/// Empty without data.streaming.
std::vector<StreamingConflict> streaming_conflicts(const Recipe& recipe);

}  // namespace runner
