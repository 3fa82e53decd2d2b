// What this rank calls on the groups of its world, kept so that it can be counted and compared with what the others
// call.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "strategies/collective/operation.hpp"

namespace runner {

/// A call as an observer is told of it.
struct CollectiveCall {
  Operation operation;
  int group;  ///< index in CollectiveTrace::groups()
  int group_size;
};

/// Calls may come from several threads.
class CollectiveTrace {
 public:
  struct Group {
    std::string name;
    std::vector<int> ranks;  ///< of the world
  };

  explicit CollectiveTrace(int rank) : rank_(rank), recent_(history) {}

  /// Every rank adds the same groups in the same order, also those it is not in. Returns the group's index.
  int add_group(std::string name, std::vector<int> ranks);
  /// Notes a call that is about to be made; its sequence number is given here.
  void called(int group, Operation operation);
  /// Tells `observer` of every call from now on, in the calling thread. Null to stop.
  void observe(std::function<void(const CollectiveCall&)> observer);

  std::vector<Group> groups() const;

  /// A call and its group, as ranks show them to one another.
  struct Noted {
    int32_t group = -1;  ///< -1: no call
    int32_t unused = 0;
    Operation operation;
  };
  static constexpr size_t history = 256;
  /// The last calls, oldest first.
  std::vector<Noted> recent() const;
  /// All calls so far.
  uint64_t count() const;
  /// A rolling hash of this rank's calls, a word for each group that it is in, in order of their indices; padded with
  /// zeros to as many as any rank has. 52 bits each, so that a double carries them.
  std::vector<double> digests() const;
  /// Ranks that called something else than the first of a group of theirs. `digests`: those of all ranks, by rank.
  std::vector<int> strayed(std::span<const double> digests) const;

 private:
  struct State {
    Group group;
    uint64_t sequence = 0;
    uint64_t digest = 0;
    std::vector<size_t> columns;  ///< of its digest, in the row of each of its ranks
  };
  const int rank_;
  mutable std::mutex mutex_;
  std::vector<State> groups_;
  std::map<int, size_t> memberships_;  ///< of each rank
  std::vector<Noted> recent_;          ///< a ring: call n is at n % history
  uint64_t count_ = 0;
  std::function<void(const CollectiveCall&)> observer_;
};

}  // namespace runner
