#include "strategies/collective/late_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "runner/base/text.hpp"

namespace runner {

namespace {

/// The number of the last call of each rank on each group, as far as the histories reach back.
class LastCalls {
 public:
  LastCalls(const std::vector<CollectiveTrace::Group>& groups, const std::vector<History>& histories)
      : groups_(groups), last_(histories.size()), complete_(histories.size()) {
    for (size_t rank = 0; rank < histories.size(); ++rank) {
      complete_[rank] = !histories[rank].empty() && histories[rank].size() < CollectiveTrace::history;
      for (const auto& call : histories[rank]) last_[rank][static_cast<size_t>(call.group)] = call.operation.sequence;
    }
  }
  std::optional<uint64_t> of(int rank, size_t group) const {
    const auto& calls = last_[static_cast<size_t>(rank)];
    const auto found = calls.find(group);
    if (found != calls.end()) return found->second;
    return complete_[static_cast<size_t>(rank)] ? std::optional<uint64_t>(0) : std::nullopt;
  }
  /// Whether a member of the group has not made call `sequence`.
  bool waits(size_t group, uint64_t sequence) const {
    return std::ranges::any_of(groups_[group].ranks, [&](int member) {
      const auto last = of(member, group);
      return last && *last < sequence;
    });
  }
  /// Members of the group that have made fewer calls than another one.
  std::vector<int> behind(size_t group) const {
    uint64_t most = 0;
    for (int member : groups_[group].ranks) most = std::max(most, of(member, group).value_or(0));
    std::vector<int> ranks;
    for (int member : groups_[group].ranks)
      if (const auto last = of(member, group); last && *last < most) ranks.push_back(member);
    return ranks;
  }

 private:
  const std::vector<CollectiveTrace::Group>& groups_;
  std::vector<std::map<size_t, uint64_t>> last_;
  std::vector<bool> complete_;  ///< whether a history has all calls of its rank
};

}  // namespace

std::optional<std::string> describe_late_ranks(const std::vector<CollectiveTrace::Group>& groups,
                                               const std::vector<History>& histories) {
  const LastCalls calls(groups, histories);
  std::vector<bool> waits(histories.size());
  std::vector<int> waiting;
  for (size_t rank = 0; rank < histories.size(); ++rank) {
    if (histories[rank].empty()) continue;
    const auto& last = histories[rank].back();
    waits[rank] = calls.waits(static_cast<size_t>(last.group), last.operation.sequence);
    if (waits[rank]) waiting.push_back(static_cast<int>(rank));
  }
  std::set<int> behind, late;
  for (size_t group = 0; group < groups.size(); ++group)
    for (int rank : calls.behind(group)) {
      behind.insert(rank);
      if (!waits[static_cast<size_t>(rank)]) late.insert(rank);
    }
  if (behind.empty() || waiting.empty()) return std::nullopt;
  std::map<std::string, std::vector<int>> parties;  // ranks by their last call
  for (int rank : late.empty() ? behind : late) {
    const auto& history = histories[static_cast<size_t>(rank)];
    const auto call = history.empty() ? "nothing yet"
                                      : describe(history.back().operation) + " of " +
                                            groups[static_cast<size_t>(history.back().group)].name;
    parties[call].push_back(rank);
  }
  std::vector<std::string> clauses;
  for (const auto& [call, ranks] : parties)
    clauses.push_back(fmt::format("{}, whose last call is {}", describe_ranks(ranks), call));
  return fmt::format("{} {} for {}", describe_ranks(waiting), waiting.size() == 1 ? "waits" : "wait",
                     join(clauses, ", and for "));
}

}  // namespace runner
