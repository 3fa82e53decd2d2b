#include "strategies/hivemind/collector.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace runner::swarm {

void Collector::loaded(int64_t epoch) {
  if (epoch > epoch_ + 1) restore(epoch, 0, 0);
  epoch_ = epoch;
  swarm_.report(epoch_, samples_);
}

void Collector::restore(int64_t epoch, double weight, int64_t samples) {
  epoch_ = epoch;
  weight_ = weight;
  samples_ = samples;
  if (weight == 0) std::ranges::fill(sum_, 0.0f);
}

bool Collector::add(std::span<const float> gradients, double weight, int64_t samples, double seconds) {
  if (gradients.size() != sum_.size()) throw std::logic_error("a collector gets another number of gradients");
  for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += static_cast<float>(weight) * gradients[i];
  weight_ += weight;
  samples_ += samples;
  swarm_.report(epoch_, samples_, samples, seconds);
  const bool waits = options_.wait_for_peers > Milliseconds(0);
  const bool ready = waits ? swarm_.wait_until_ready(options_.wait_for_peers) : swarm_.is_ready();
  advances_ = ready && (options_.local_updates || !needs_state());
  if (options_.local_updates) {
    std::ranges::copy(gradients, mean_.begin());
    return true;
  }
  return advances_ && average_gradients();
}

/// If no group was found, or it failed, these are the peer's own gradients. A peer without any, or that was left behind while it looked
/// for a group, makes no update.
bool Collector::average_gradients() {
  const float factor = weight_ > 0 ? static_cast<float>(1 / weight_) : 0.0f;
  std::ranges::transform(sum_, mean_.begin(), [&](float sum) { return sum * factor; });
  last_ = swarm_.average(fmt::format("gradients {}", epoch_), mean_, weight_, options_.gradients);
  return last_.members > 1 || (weight_ > 0 && !needs_state());
}

void Collector::updated() {
  if (!advances_) return;
  restore(epoch_ + 1, 0, 0);
  swarm_.report(epoch_, 0);
}

void Collector::skipped() {
  if (options_.local_updates) return;  // nothing is kept
  restore(epoch_, 0, 0);
  swarm_.report(epoch_, 0);
}

bool Collector::state_due() const {
  return advances_ && options_.average_state_every > 0 && epoch_ % options_.average_state_every == 0 &&
         swarm_.progress().peers > 1;
}

bool Collector::average_state(std::span<float> values) {
  last_ = swarm_.average(fmt::format("state {}", epoch_), values, 1, options_.state);
  return last_.members > 1;
}

}  // namespace runner::swarm
