#include "strategies/collective/divergence.hpp"

#include <algorithm>
#include <cstring>
#include <map>

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

/// Indices of a history's calls on the groups that two ranks share.
std::vector<size_t> shared_calls(const History& history, const std::vector<Group>& groups, int rank, int other) {
  std::vector<bool> shared;
  for (const auto& group : groups) {
    auto has = [&](int r) { return std::find(group.ranks.begin(), group.ranks.end(), r) != group.ranks.end(); };
    shared.push_back(has(rank) && has(other));
  }
  std::vector<size_t> calls;
  for (size_t i = 0; i < history.size(); ++i) {
    auto group = static_cast<size_t>(history[i].group);
    if (group < shared.size() && shared[group]) calls.push_back(i);
  }
  return calls;
}

/// The first difference between the calls of two ranks: an index into the history of each.
std::optional<std::pair<size_t, size_t>> first_difference(const std::vector<Group>& groups,
                                                          const std::vector<History>& histories, int a, int b) {
  const auto &ours = histories[static_cast<size_t>(a)], &theirs = histories[static_cast<size_t>(b)];
  auto left = shared_calls(ours, groups, a, b), right = shared_calls(theirs, groups, b, a);
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

/// The operations at the first difference between the first known rank of `group` and any other rank of it.
std::optional<std::string> divergence_in(const Group& group, const std::vector<Group>& groups,
                                         const std::vector<History>& histories) {
  auto known = [&](int rank) { return !histories[static_cast<size_t>(rank)].empty(); };
  auto leader = std::find_if(group.ranks.begin(), group.ranks.end(), known);
  if (leader == group.ranks.end()) return std::nullopt;
  std::map<int, std::pair<size_t, size_t>> differences;
  size_t first = SIZE_MAX;
  for (int rank : group.ranks) {
    auto difference = rank == *leader ? std::nullopt : first_difference(groups, histories, *leader, rank);
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
    operations.push_back({rank, call.operation, one_group ? "" : groups[static_cast<size_t>(call.group)].name});
  std::sort(operations.begin(), operations.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return describe_divergence(operations);
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
  return std::nullopt;
}

void require_agreement(const World& world, const at::Tensor& digests) {
  auto strayed = world.trace->strayed({digests.data_ptr<double>(), static_cast<size_t>(digests.numel())});
  if (strayed.empty()) return;
  auto mine = to_bytes(world.trace->recent());
  mine.resize(CollectiveTrace::history * sizeof(Noted), 0xff);  // entries of no group
  auto input = torch::from_blob(mine.data(), {static_cast<int64_t>(mine.size())}, torch::kUInt8);
  auto output = torch::empty({world.size * input.numel()}, torch::kUInt8);
  world.control->_allgather_base(output, input)->wait();
  std::vector<History> histories;
  for (int rank = 0; rank < world.size; ++rank)
    histories.push_back(history_from(output.data_ptr<uint8_t>() + rank * input.numel(), mine.size()));
  auto text = find_divergence(world.trace->groups(), histories);
  throw run_error(
      "{}", text ? *text
                 : fmt::format("ranks diverged before their last {} collectives: {} called others than the first of "
                               "their group",
                               CollectiveTrace::history, describe_ranks(strayed)));
}

}  // namespace runner
