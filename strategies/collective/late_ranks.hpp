// Finds the ranks for which others wait, from the last calls of each rank.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "strategies/collective/divergence.hpp"

namespace runner {

/// A rank is late if another rank of one of its groups has made a call that it has not made, and if it does not wait for a late rank
/// itself. The text names the late ranks, their last calls, and the ranks that wait: "ranks 0, 1 wait for rank 2, whose last call is
/// all_reduce #41 (8 B of float32) of world". If all ranks wait, because each has started a call that another has not made (a receive, for
/// example), the text has the last calls of all that have fallen behind. Nullopt if no rank has. `histories[rank]` is empty for an unknown
/// rank.
std::optional<std::string> describe_late_ranks(const std::vector<CollectiveTrace::Group>& groups,
                                               const std::vector<History>& histories);

}  // namespace runner
