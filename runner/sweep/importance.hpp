// Importance: how much each parameter influenced the result of a sweep.
#pragma once
#include <string>
#include <vector>

#include "runner/sweep/space.hpp"

namespace runner::sweep {

struct Observation {
  nlohmann::json parameters;
  double value = 0;
};

struct Importance {
  std::string parameter;
  double share = 0;  ///< share of the variance, 0 to 1
};

/// For each parameter, the share of the variance that it explains alone; the most important first. It is a one-way
/// analysis of variance over choices, or over up to 6 equally filled bins of a range (trials in which the parameter is
/// inactive form another bin), corrected for chance (Kelley's epsilon squared). Joint effects of parameters are in none
/// of the shares. Throws Error(usage) for fewer than 8 observations.
std::vector<Importance> importance(const Space& space, const std::vector<Observation>& observations);

/// The space that the observations cover: the range of a parameter's numbers, or its choices. For sweeps that define no
/// space.
Space observed_space(const std::vector<Observation>& observations);

}  // namespace runner::sweep
