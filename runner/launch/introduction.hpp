// How a supervisor presents itself to rank 0's, and what both must agree on.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "runner/launch/cluster.hpp"

namespace runner {

struct Introduction {
  Placement placement;
  std::string host;
  /// {section: {key: value}} of all that every supervisor must be started with alike: the recipe, the version ...
  nlohmann::json alike;

  /// The ranks that it supervises.
  int first_rank() const { return placement.rank; }
  int rank_count() const { return placement.launched ? 1 : placement.local_size; }
};

nlohmann::json to_json(const Introduction& introduction);
/// Throws nlohmann::json::exception for what is no introduction.
Introduction introduction_from_json(const nlohmann::json& json);

/// Why `other` has no place among the ranks that `leader` counts; "" if it has.
std::string misplacement(const Introduction& leader, const Introduction& other);
/// What `other` would run differently; "" if nothing.
std::string disagreement(const Introduction& leader, const Introduction& other);

/// "rank 2 (node 1, host gpu07)".
std::string describe(const Introduction& introduction);

}  // namespace runner
