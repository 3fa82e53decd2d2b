// The collectives that this rank calls, recorded so that they can be counted and compared with those of other ranks.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "strategies/collective/operation.hpp"

namespace runner {

/// A call, as observers receive it.
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

  /// Every rank must add the same groups in the same order, also groups without it. Returns the group's index.
  int add_group(std::string name, std::vector<int> ranks);
  /// Records a call before it is made, and assigns its sequence number.
  void called(int group, Operation operation);
  /// Calls `observer` for every later call, in the calling thread. Null removes it.
  void observe(std::function<void(const CollectiveCall&)> observer);

  std::vector<Group> groups() const;

  /// A call and its group, as ranks exchange them.
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
  /// Rolling hashes of this rank's calls: one for each of its groups, in the order of their indices, padded with zeros to the largest
  /// number that any rank has. Each has 52 bits, so that a double can represent it.
  std::vector<double> digests() const;
  /// This rank's share of a number whose sum over all ranks, modulo 2^64, is 0 if the ranks of each group have made the same calls. If
  /// they have not, it is 0 by chance only (2^-64). So one number per rank suffices, whatever the number of ranks and groups.
  uint64_t agreement_share() const;
  /// Ranks whose calls differ from those of the first rank of one of their groups. `digests` are those of all ranks, by rank.
  std::vector<int> strayed(std::span<const double> digests) const;

 private:
  struct State {
    Group group;
    std::optional<size_t> position;  ///< of this rank in the group
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
