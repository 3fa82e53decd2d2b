#include "strategies/collective/trace.hpp"

#include <algorithm>
#include <bit>
#include <set>

#include "runner/base/hash.hpp"

namespace runner {

int CollectiveTrace::add_group(std::string name, std::vector<int> ranks) {
  std::lock_guard lock(mutex_);
  State state;
  state.group = {std::move(name), std::move(ranks)};
  const auto& members = state.group.ranks;
  if (const auto own = std::ranges::find(members, rank_); own != members.end())
    state.position = static_cast<size_t>(own - members.begin());
  for (int rank : state.group.ranks) state.columns.push_back(memberships_[rank]++);
  groups_.push_back(std::move(state));
  return static_cast<int>(groups_.size()) - 1;
}

void CollectiveTrace::called(int group, Operation operation) {
  std::lock_guard lock(mutex_);
  auto& state = groups_.at(static_cast<size_t>(group));
  operation.sequence = ++state.sequence;
  for (uint64_t word : std::bit_cast<std::array<uint64_t, 3>>(operation)) state.digest = mix64(state.digest + word);
  recent_[count_++ % history] = {group, 0, operation};
  if (observer_) observer_({operation, group, static_cast<int>(state.group.ranks.size())});
}

void CollectiveTrace::observe(std::function<void(const CollectiveCall&)> observer) {
  std::lock_guard lock(mutex_);
  observer_ = std::move(observer);
}

std::vector<CollectiveTrace::Group> CollectiveTrace::groups() const {
  std::lock_guard lock(mutex_);
  std::vector<Group> groups;
  for (const auto& state : groups_) groups.push_back(state.group);
  return groups;
}

std::vector<CollectiveTrace::Noted> CollectiveTrace::recent() const {
  std::lock_guard lock(mutex_);
  std::vector<Noted> calls;
  for (uint64_t n = count_ - std::min<uint64_t>(count_, history); n < count_; ++n)
    calls.push_back(recent_[n % history]);
  return calls;
}

uint64_t CollectiveTrace::count() const {
  std::lock_guard lock(mutex_);
  return count_;
}

std::vector<double> CollectiveTrace::digests() const {
  std::lock_guard lock(mutex_);
  size_t most = 0;
  for (const auto& [rank, count] : memberships_) most = std::max(most, count);
  std::vector<double> words;
  for (const auto& state : groups_)
    if (state.position) words.push_back(static_cast<double>(state.digest >> 12));
  words.resize(most);
  return words;
}

/// Each rank multiplies the digest of a group by a factor. The factors of the ranks of a group are random numbers, each minus the next
/// one, so that their sum is 0.
uint64_t CollectiveTrace::agreement_share() const {
  std::lock_guard lock(mutex_);
  uint64_t share = 0;
  for (size_t group = 0; group < groups_.size(); ++group) {
    const auto& state = groups_[group];
    if (!state.position) continue;
    auto random = [&](size_t member) { return mix64(mix64(group) + member % state.group.ranks.size()); };
    share += state.digest * (random(*state.position) - random(*state.position + 1));
  }
  return share;
}

std::vector<int> CollectiveTrace::strayed(std::span<const double> digests) const {
  std::lock_guard lock(mutex_);
  size_t columns = digests.size() / memberships_.size();  // all ranks are in the world's group
  std::set<int> strayed;
  for (const auto& state : groups_) {
    auto digest = [&](size_t member) {
      return digests[static_cast<size_t>(state.group.ranks[member]) * columns + state.columns[member]];
    };
    for (size_t member = 1; member < state.columns.size(); ++member)
      if (digest(member) != digest(0)) strayed.insert(state.group.ranks[member]);
  }
  return {strayed.begin(), strayed.end()};
}

}  // namespace runner
