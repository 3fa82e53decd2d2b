#include "strategies/collective/divergence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

using Group = CollectiveTrace::Group;
using Noted = CollectiveTrace::Noted;

bool same_place(const Noted& a, const Noted& b) {
  return a.group == b.group && a.operation.sequence == b.operation.sequence;
}

bool same_call(const Noted& a, const Noted& b) { return a.group == b.group && a.operation == b.operation; }

/// Calls that two ranks make in the same order: collectives on the groups that they share, or the transfers of a channel.
class CommonCalls {
 public:
  /// `channel`: index of its group; nullopt for collectives.
  CommonCalls(const std::vector<Group>& groups, int rank, int other, std::optional<size_t> channel)
      : transfers_(channel.has_value()) {
    for (size_t i = 0; i < groups.size(); ++i) {
      const auto& ranks = groups[i].ranks;
      auto has = [&](int r) { return std::find(ranks.begin(), ranks.end(), r) != ranks.end(); };
      shared_.push_back(i == channel.value_or(i) && has(rank) && has(other));
    }
  }
  /// Indices into a history of one of the ranks.
  std::vector<size_t> in(const History& history) const {
    std::vector<size_t> calls;
    for (size_t i = 0; i < history.size(); ++i) {
      auto group = static_cast<size_t>(history[i].group);
      bool transfer = history[i].operation.kind == Collective::transfer;
      if (group < shared_.size() && shared_[group] && transfer == transfers_) calls.push_back(i);
    }
    return calls;
  }

 private:
  bool transfers_;
  std::vector<bool> shared_;
};

/// The first difference between the calls of two ranks: an index into the history of each.
std::optional<std::pair<size_t, size_t>> first_difference(const CommonCalls& calls, const History& ours,
                                                          const History& theirs) {
  auto left = calls.in(ours), right = calls.in(theirs);
  if (left.empty() || right.empty()) return std::nullopt;
  auto i = left.begin(), j = right.begin();
  bool reach_back = ours.size() < CollectiveTrace::history && theirs.size() < CollectiveTrace::history;
  if (!reach_back) {  // the histories do not contain the first calls: begin at the first call that both contain
    i = std::find_if(i, left.end(), [&](size_t at) { return same_place(ours[at], theirs[right.front()]); });
  }
  if (i == left.end()) {
    i = left.begin();
    j = std::find_if(right.begin(), right.end(), [&](size_t at) { return same_place(theirs[at], ours[left.front()]); });
  }
  for (; i != left.end() && j != right.end(); ++i, ++j)
    if (!same_call(ours[*i], theirs[*j])) return std::pair(*i, *j);
  return std::nullopt;
}

/// The operations at the first difference between the first known rank of `group` and any other rank of it. `channel`: the index of the
/// group, if its transfers are compared instead of collectives.
std::optional<std::string> divergence_in(const Group& group, const std::vector<Group>& groups,
                                         const std::vector<History>& histories, std::optional<size_t> channel = {}) {
  auto known = [&](int rank) { return !histories[static_cast<size_t>(rank)].empty(); };
  auto leader = std::find_if(group.ranks.begin(), group.ranks.end(), known);
  if (leader == group.ranks.end()) return std::nullopt;
  std::map<int, std::pair<size_t, size_t>> differences;
  size_t first = SIZE_MAX;
  for (int rank : group.ranks) {
    if (rank == *leader) continue;
    auto difference = first_difference(CommonCalls(groups, *leader, rank, channel),
                                       histories[static_cast<size_t>(*leader)], histories[static_cast<size_t>(rank)]);
    if (!difference) continue;
    differences[rank] = *difference;
    first = std::min(first, difference->first);
  }
  if (differences.empty()) return std::nullopt;
  const Noted& expected = histories[static_cast<size_t>(*leader)][first];
  std::vector<std::pair<int, Noted>> doing;
  for (int rank : group.ranks) {
    const auto& history = histories[static_cast<size_t>(rank)];
    auto difference = differences.find(rank);
    if (difference != differences.end() && difference->second.first == first)
      doing.emplace_back(rank, history[difference->second.second]);
    else if (std::any_of(history.begin(), history.end(), [&](const Noted& call) { return same_call(call, expected); }))
      doing.emplace_back(rank, expected);
  }
  bool one_group =
      std::all_of(doing.begin(), doing.end(), [&](const auto& other) { return other.second.group == expected.group; });
  std::vector<RankOperation> operations;
  for (const auto& [rank, call] : doing)
    operations.push_back(
        {rank, call.operation, one_group && !channel ? "" : groups[static_cast<size_t>(call.group)].name});
  std::sort(operations.begin(), operations.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return describe_divergence(operations);
}

/// The last transfer in a history on a group; sequence 0 if the history does not reach back to it.
Operation last_transfer(const History& history, size_t group) {
  for (auto call = history.rbegin(); call != history.rend(); ++call)
    if (static_cast<size_t>(call->group) == group && call->operation.kind == Collective::transfer)
      return call->operation;
  return {};
}

/// The rank that has not called the send for which a rank waits; nullopt if the rank does not wait, or that is not known.
std::optional<int> missing_sender(const std::vector<Group>& groups, const std::vector<History>& histories, int rank) {
  const auto& history = histories[static_cast<size_t>(rank)];
  if (history.empty() || history.back().operation.kind != Collective::transfer) return std::nullopt;
  const auto group = static_cast<size_t>(history.back().group);
  const auto& ranks = groups.at(group).ranks;
  if (ranks.size() != 2 || ranks[1] != rank) return std::nullopt;
  const auto& other = histories[static_cast<size_t>(ranks[0])];
  const auto sent = last_transfer(other, group).sequence;
  const bool known = sent > 0 || (!other.empty() && other.size() < CollectiveTrace::history);
  return known && sent < history.back().operation.sequence ? std::optional(ranks[0]) : std::nullopt;
}

/// A channel on which one rank has called more transfers than the other, at the same point of the program.
std::optional<std::string> uneven_channel(const std::vector<Group>& groups, const std::vector<History>& histories) {
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto& [name, ranks] = groups[i];
    if (ranks.size() != 2) continue;
    auto sent = last_transfer(histories[static_cast<size_t>(ranks[0])], i),
         received = last_transfer(histories[static_cast<size_t>(ranks[1])], i);
    if (sent.sequence != received.sequence && sent.sequence > 0 && received.sequence > 0)
      return fmt::format("ranks diverged: rank {} is at {} of {}, rank {} at {}", ranks[0], describe(sent), name,
                         ranks[1], describe(received));
  }
  return std::nullopt;
}

}  // namespace

std::vector<uint8_t> to_bytes(const History& history) {
  std::vector<uint8_t> bytes(history.size() * sizeof(Noted));
  if (!bytes.empty()) std::memcpy(bytes.data(), history.data(), bytes.size());
  return bytes;
}

History history_from(const uint8_t* bytes, size_t size) {
  History history(size / sizeof(Noted));
  if (!history.empty()) std::memcpy(history.data(), bytes, history.size() * sizeof(Noted));
  std::erase_if(history, [](const Noted& call) { return call.group < 0; });
  return history;
}

std::optional<std::string> find_divergence(const std::vector<Group>& groups, const std::vector<History>& histories) {
  for (const auto& group : groups)
    if (auto text = divergence_in(group, groups, histories)) return text;
  for (size_t i = 0; i < groups.size(); ++i)
    if (groups[i].ranks.size() == 2)
      if (auto text = divergence_in(groups[i], groups, histories, i)) return text;
  return std::nullopt;
}

std::optional<std::string> find_deadlock(const std::vector<Group>& groups, const std::vector<History>& histories) {
  for (int first = 0; first < static_cast<int>(histories.size()); ++first) {
    std::vector<int> waiting;
    std::optional<int> rank = first;
    while (rank && std::find(waiting.begin(), waiting.end(), *rank) == waiting.end()) {
      waiting.push_back(*rank);
      rank = missing_sender(groups, histories, *rank);
    }
    if (rank != first) continue;
    std::sort(waiting.begin(), waiting.end());
    std::vector<std::string> clauses;
    for (const int one : waiting) {
      const auto& call = histories[static_cast<size_t>(one)].back();
      clauses.push_back(fmt::format("rank {} in {} of {}", one, describe(call.operation),
                                    groups[static_cast<size_t>(call.group)].name));
    }
    return "ranks wait for each other: " + join(clauses, ", ");
  }
  return std::nullopt;
}

AgreementWords agreement_words(const CollectiveTrace& trace) {
  const uint64_t share = trace.agreement_share();
  return {static_cast<double>(share & UINT32_MAX), static_cast<double>(share >> 32)};
}

void require_agreement(const World& world, const AgreementWords& sums) {
  if (static_cast<uint64_t>(sums[0]) + (static_cast<uint64_t>(sums[1]) << 32) == 0) return;
  auto row = torch::tensor(world.trace->digests(), torch::kFloat64);
  auto digests = torch::empty({world.size * row.numel()}, torch::kFloat64);
  world.control->_allgather_base(digests, row)->wait();
  const auto strayed = world.trace->strayed({digests.data_ptr<double>(), static_cast<size_t>(digests.numel())});
  auto mine = to_bytes(world.trace->recent());
  mine.resize(CollectiveTrace::history * sizeof(Noted), 0xff);  // entries of no group
  auto input = torch::from_blob(mine.data(), {static_cast<int64_t>(mine.size())}, torch::kUInt8);
  auto output = torch::empty({world.size * input.numel()}, torch::kUInt8);
  world.control->_allgather_base(output, input)->wait();
  std::vector<History> histories;
  for (int rank = 0; rank < world.size; ++rank)
    histories.push_back(history_from(output.data_ptr<uint8_t>() + rank * input.numel(), mine.size()));
  auto groups = world.trace->groups();
  auto text = find_divergence(groups, histories);
  if (!text) text = uneven_channel(groups, histories);
  throw run_error(
      "{}", text ? *text
                 : fmt::format("ranks diverged before their last {} collectives: {} called others than the first of "
                               "their group",
                               CollectiveTrace::history, describe_ranks(strayed)));
}

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
