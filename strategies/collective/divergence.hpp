// Finds the first collective that ranks did not call alike, from what each of them called last.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "strategies/collective/world.hpp"

namespace runner {

/// The last calls of one rank, oldest first.
using History = std::vector<CollectiveTrace::Noted>;
std::vector<uint8_t> to_bytes(const History& history);
History history_from(const uint8_t* bytes, size_t size);

/// The ranks of a group call the same collectives on it, and groups that share ranks in the same order: what any two
/// ranks called on the groups they share is one sequence, of which one of them may have seen less. Says where that does
/// not hold, and who did what there; nullopt when it holds as far as can be seen. `histories[rank]` is empty where
/// nothing is known.
std::optional<std::string> find_divergence(const std::vector<CollectiveTrace::Group>& groups,
                                           const std::vector<History>& histories);

/// `digests`: what CollectiveTrace::digests says on each rank, by rank, taken at the same point of the program.
/// Collective only where they differ; then throws Error(run_failed) on all ranks, with the first call that was not
/// alike.
void require_agreement(const World& world, const at::Tensor& digests);

}  // namespace runner
