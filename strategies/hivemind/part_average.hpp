// One member's part of a butterfly all-reduce: it collects the values of all members, piece by piece, and averages them with their weights.
#pragma once
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "strategies/hivemind/socket.hpp"

namespace runner::swarm {

/// Thread-safe. The sums are made in the order of the members, in double precision, so they do not depend on the order of arrival.
class PartAverage {
 public:
  /// `patience`: after the first values of a piece, the others must arrive in this time. Otherwise their senders are excluded from this
  /// piece and all later ones.
  PartAverage(size_t members, Milliseconds patience) : members_(members), patience_(patience), next_(members) {}

  /// A member's values of a piece. Waits for the others and returns the weighted average. A member sends its pieces in order, from 0 on.
  /// Throws ConnectionError if the member is excluded, or at the deadline.
  std::shared_ptr<const std::vector<float>> contribute(size_t member, size_t piece, std::vector<float> values,
                                                       double weight, Deadline deadline);
  /// The member has failed: nobody waits for it any more.
  void exclude(size_t member);
  std::set<size_t> excluded() const;

 private:
  struct Contribution {
    std::vector<float> values;
    double weight;
  };
  struct Piece {
    std::map<size_t, Contribution> arrived;
    Clock::time_point first;  ///< when the first values arrived
    std::shared_ptr<const std::vector<float>> average;
  };
  void complete(Piece& piece);
  bool is_complete(const Piece& piece) const;

  size_t members_;
  Milliseconds patience_;
  std::vector<size_t> next_;  ///< piece of each member
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<size_t, std::shared_ptr<Piece>> pieces_;  ///< without those that are averaged
  std::set<size_t> excluded_;
};

}  // namespace runner::swarm
