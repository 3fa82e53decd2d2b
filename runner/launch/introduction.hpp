// The data that a supervisor sends to rank 0's supervisor when it joins, and the checks that both agree.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "runner/launch/cluster.hpp"

namespace runner {

struct Introduction {
  Placement placement;
  std::string host;
  /// {section: {key: value}}: settings that must be equal on all supervisors: the recipe, the version, ...
  nlohmann::json alike = nlohmann::json::object();
  std::string secret = "";  ///< of the connections (nodes_secret()); never sent

  /// The first rank that this supervisor runs.
  int first_rank() const { return placement.rank; }
  int rank_count() const { return placement.launched ? 1 : placement.local_size; }
};

nlohmann::json to_json(const Introduction& introduction);
/// Throws BadMessage if `json` is not an introduction, or has values that no supervisor has.
Introduction introduction_from_json(const nlohmann::json& json);

/// Why the ranks of `other` do not fit the world of `leader`; "" if they do.
std::string misplacement(const Introduction& leader, const Introduction& other);
/// The settings that differ between `leader` and `other`; "" if there are none.
std::string disagreement(const Introduction& leader, const Introduction& other);

/// "rank 2 (node 1, host gpu07)"; in an elastic run "the node gpu07".
std::string describe(const Introduction& introduction);

}  // namespace runner
