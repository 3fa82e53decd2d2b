// How far the swarm is with the samples of its next update.
#pragma once
#include <vector>

#include "strategies/hivemind/peer.hpp"

namespace runner::swarm {

/// Seconds since the record of a peer arrived are not counted: its samples are those that it has reported.
struct Progress {
  int64_t epoch = 0;     ///< updates that the peer with the most has made
  int64_t samples = 0;   ///< of all peers in that epoch
  int64_t others = 0;    ///< of these, the samples of other peers
  double rate = 0;       ///< samples per second of these peers
  int peers = 1;         ///< that train, with this one
  bool reached = false;  ///< the samples are as many as the target

  /// Seconds until the target; nullopt if no rate is known.
  std::optional<double> seconds_left(int64_t target) const {
    if (samples >= target) return 0;
    if (rate <= 0) return std::nullopt;
    return static_cast<double>(target - samples) / rate;
  }
};

/// `others`: those with the same schema count.
Progress progress_of(const PeerRecord& own, const std::vector<PeerRecord>& others, int64_t target);

/// Decides when the swarm can update: when the samples are there, when another peer has made the update already, or when the time has
/// passed in which they should be there, as of the last report of another peer. Own samples do not move that time: otherwise each step
/// would, and a peer that has become silent would never be noticed. A peer alone knows its samples and does not estimate.
class Readiness {
 public:
  /// estimates: whether a time that has passed counts.
  Readiness(int64_t target, bool estimates) : target_(target), estimates_(estimates) {}
  bool is_ready(const Progress& progress, int64_t own_epoch, Clock::time_point now);

 private:
  int64_t target_;
  bool estimates_;
  int64_t epoch_ = -1, others_ = -1;
  Clock::time_point expected_ = Clock::time_point::max();
};

/// This peer's samples per second: a moving average of steps, corrected for its start.
class Rate {
 public:
  explicit Rate(double alpha) : alpha_(alpha) {}
  void add(int64_t samples, double seconds);
  double value() const { return weight_ > 0 ? seconds_per_sample_to_rate() : 0; }

 private:
  double seconds_per_sample_to_rate() const { return seconds_per_sample_ > 0 ? weight_ / seconds_per_sample_ : 0; }
  double alpha_, weight_ = 0, seconds_per_sample_ = 0;
};

}  // namespace runner::swarm
