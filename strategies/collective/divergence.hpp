// Finds from the last calls of each rank the first collective in which ranks differ, and the ranks for which others wait.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "strategies/collective/world.hpp"

namespace runner {

/// The last calls of one rank, oldest first.
using History = std::vector<CollectiveTrace::Noted>;
std::vector<uint8_t> to_bytes(const History& history);
History history_from(const uint8_t* bytes, size_t size);

/// All ranks of a group must call the same collectives on it, and groups that share ranks must be used in the same order. So the
/// collectives of two ranks on their common groups are one sequence; one rank may be behind. The transfers of each group are a sequence
/// of their own, because channels have no order with respect to each other. Returns the first difference and the
/// operation of each rank there, or nullopt if the histories show none. `histories[rank]` is empty for an unknown rank.
std::optional<std::string> find_divergence(const std::vector<CollectiveTrace::Group>& groups,
                                           const std::vector<History>& histories);

/// Ranks that wait for each other's messages: the last call of each one is a receive, and the next one has not called its send. A rank
/// whose last call is a receive must wait in it. Returns what each of them waits in, or nullopt if there are none.
std::optional<std::string> find_deadlock(const std::vector<CollectiveTrace::Group>& groups,
                                         const std::vector<History>& histories);

/// A rank is late if another rank of one of its groups has made a call that it has not made, and if it does not wait for a late rank
/// itself. The text names the late ranks, their last calls, and the ranks that wait: "ranks 0, 1 wait for rank 2, whose last call is
/// all_reduce #41 (8 B of float32) of world". If all ranks wait, because each has started a call that another has not made (a receive, for
/// example), the text has the last calls of all that have fallen behind. Nullopt if no rank has. `histories[rank]` is empty for an unknown
/// rank.
std::optional<std::string> describe_late_ranks(const std::vector<CollectiveTrace::Group>& groups,
                                               const std::vector<History>& histories);

/// Two numbers of a rank, to be summed over all ranks together with what else they sum at the same point of the program. The sums are
/// exact, for up to 2^21 ranks.
using AgreementWords = std::array<double, 2>;
AgreementWords agreement_words(const CollectiveTrace& trace);
/// `sums`: of the agreement words of all ranks. If ranks of each group have made the same calls, nothing is exchanged. Otherwise this is
/// a collective call, and it throws Error(run_failed) on all ranks with the first differing call.
void require_agreement(const World& world, const AgreementWords& sums);

}  // namespace runner
