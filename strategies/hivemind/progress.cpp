#include "strategies/hivemind/progress.hpp"

#include <algorithm>

namespace runner::swarm {

Progress progress_of(const PeerRecord& own, const std::vector<PeerRecord>& others, int64_t target) {
  Progress progress{.epoch = own.epoch};
  const auto counts = [&](const PeerRecord& peer) { return peer.participates && peer.schema == own.schema; };
  for (const auto& peer : others)
    if (counts(peer)) progress.epoch = std::max(progress.epoch, peer.epoch);
  const auto add = [&](const PeerRecord& peer) {
    if (peer.epoch != progress.epoch) return;
    progress.samples += std::min(peer.samples, target);  // so that no record makes the sum overflow
    progress.rate += peer.rate;
  };
  add(own);
  for (const auto& peer : others) {
    if (!counts(peer)) continue;
    ++progress.peers;
    const int64_t before = progress.samples;
    add(peer);
    progress.others += progress.samples - before;
  }
  progress.reached = progress.samples >= target;
  return progress;
}

bool Readiness::is_ready(const Progress& progress, int64_t own_epoch, Clock::time_point now) {
  if (progress.epoch > own_epoch || progress.reached) return true;
  if (!estimates_ || progress.peers == 1) return false;
  if (progress.epoch != epoch_ || progress.others != others_) {
    epoch_ = progress.epoch;
    others_ = progress.others;
    const auto left = progress.seconds_left(target_);
    constexpr double longest = 1e6;  // seconds
    expected_ = left && *left < longest
                    ? now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*left))
                    : Clock::time_point::max();
  }
  return progress.samples > 0 && now >= expected_;
}

void Rate::add(int64_t samples, double seconds) {
  if (samples <= 0) return;
  seconds_per_sample_ = alpha_ * seconds / static_cast<double>(samples) + (1 - alpha_) * seconds_per_sample_;
  weight_ = alpha_ + (1 - alpha_) * weight_;
}

}  // namespace runner::swarm
