// How much each parameter mattered.
#pragma once
#include <map>
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
  double share = 0;  ///< of the value's variance, 0 to 1
};

/// The share of the values' variance that one parameter explains by itself, most important first: a one-way analysis of
/// variance over choices, or over up to 6 equally full bins of a range (trials where it is inactive are a bin of their
/// own), corrected for chance (Kelley's epsilon squared). Effects of parameters together are in none of the shares.
/// Throws Error(usage) with fewer than 8 observations.
std::vector<Importance> importance(const Space& space, const std::vector<Observation>& observations);

/// What the observations span: a range of the numbers that a parameter had, else the choices. For sweeps without a
/// space of their own.
Space observed_space(const std::vector<Observation>& observations);

}  // namespace runner::sweep
