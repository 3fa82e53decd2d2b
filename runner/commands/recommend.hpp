// The findings of `runner recommend`, for its own output and for the page of `runner ui`.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/config/recipe.hpp"
#include "runner/report/recommendation.hpp"

namespace runner {

struct RecommendOptions {
  std::string recipe, device_kind;
  std::vector<std::string> overrides;
  int devices = 0, num_nodes = 0, world_size = 0;  ///< 0 = as in the recipe
  std::string host_memory;                         ///< of a node, e.g. "256GiB"; empty = not known
  bool json = false, toml = false, all = false, why = false, program = false;
};

/// Plans the recipe on the devices of `options`, or on this machine's, and calls `use` once with the result, which refers to local
/// objects. Throws Error(usage or environment).
ExitCode with_recommendation(const RecommendOptions& options, const Recipe& recipe,
                             const std::function<ExitCode(const Recommendation&)>& use);

}  // namespace runner
