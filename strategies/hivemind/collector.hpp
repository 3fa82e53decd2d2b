// Collects the gradients of a peer's steps until the swarm has enough samples for an update, and counts the updates (epochs) of the swarm.
// This header is torch-free.
//
//   step: if needs_state(): load the state of a peer, loaded()
//         compute gradients -> add() -> if it returns true: update with gradients(), then updated(), and average the state if state_due()
//
// A peer that has missed one update keeps its gradients for the next one; if it has missed more, they are dropped.
#pragma once
#include <fmt/format.h>

#include <algorithm>

#include "strategies/hivemind/swarm.hpp"

namespace runner::swarm {

struct CollectorOptions {
  /// After a step, wait so long for the samples of other peers, instead of computing the next batch at once.
  Milliseconds wait_for_peers{0};
  Compression gradients = Compression::none, state = Compression::none;
  int64_t average_state_every = 1;  ///< updates; 0: never
  /// Each step updates with its own gradients, and only the state is averaged. A peer that is one epoch behind then finishes its step,
  /// and averages its state with the others; only one that is further behind loads theirs. Source: hivemind's Optimizer.
  bool local_updates = false;
};

class Collector {
 public:
  /// `values`: elements of all gradients. The references must outlive it.
  Collector(Swarm& swarm, size_t values, CollectorOptions options)
      : swarm_(swarm), options_(options), sum_(values), mean_(values) {}

  /// Whether this peer is so far behind another one that it must load a state.
  bool needs_state() const { return swarm_.progress().epoch > epoch_ + (options_.local_updates ? 1 : 0); }
  /// The parameters are those after `epoch` updates.
  void loaded(int64_t epoch) {
    if (epoch > epoch_ + 1) restore(epoch, 0, 0);
    epoch_ = epoch;
    swarm_.report(epoch_, samples_);
  }

  /// Adds the gradients of the mean over `weight` units (tokens, images ...) of `samples` samples. `seconds`: the length of the step.
  /// Gradients that are not finite must not be added. Returns true if an update is due, with gradients().
  bool add(std::span<const float> gradients, double weight, int64_t samples, double seconds) {
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

  /// The gradients of the mean over all units that the group has collected.
  std::span<const float> gradients() const { return mean_; }
  /// How many peers they are from.
  const AverageResult& last_average() const { return last_; }
  /// The update is made.
  void updated() {
    if (!advances_) return;
    restore(epoch_ + 1, 0, 0);
    swarm_.report(epoch_, 0);
  }
  /// The update that add() asked for was not made: its gradients are dropped, and do not count again.
  void skipped() {
    if (options_.local_updates) return;  // nothing is kept
    restore(epoch_, 0, 0);
    swarm_.report(epoch_, 0);
  }
  bool state_due() const {
    return advances_ && options_.average_state_every > 0 && epoch_ % options_.average_state_every == 0 &&
           swarm_.progress().peers > 1;
  }
  /// Averages the parameters, and other state, with equal weights. Returns whether they have changed.
  bool average_state(std::span<float> values) {
    last_ = swarm_.average(fmt::format("state {}", epoch_), values, 1, options_.state);
    return last_.members > 1;
  }

  int64_t epoch() const { return epoch_; }
  // ---- for checkpoints
  std::vector<float>& sum() { return sum_; }
  double weight() const { return weight_; }
  int64_t samples() const { return samples_; }
  void restore(int64_t epoch, double weight, int64_t samples) {
    epoch_ = epoch;
    weight_ = weight;
    samples_ = samples;
    if (weight == 0) std::ranges::fill(sum_, 0.0f);
  }

 private:
  /// If no group was found, or it failed, these are the peer's own gradients. A peer without any, or that was left behind while it looked
  /// for a group, makes no update.
  bool average_gradients() {
    const float factor = weight_ > 0 ? static_cast<float>(1 / weight_) : 0.0f;
    std::ranges::transform(sum_, mean_.begin(), [&](float sum) { return sum * factor; });
    last_ = swarm_.average(fmt::format("gradients {}", epoch_), mean_, weight_, options_.gradients);
    return last_.members > 1 || (weight_ > 0 && !needs_state());
  }

  Swarm& swarm_;
  CollectorOptions options_;
  std::vector<float> sum_;   ///< of gradients x weight since the last update
  std::vector<float> mean_;  ///< of the update that is due
  double weight_ = 0;
  int64_t samples_ = 0, epoch_ = 0;
  bool advances_ = true;  ///< the update that is due completes an epoch
  AverageResult last_;
};

}  // namespace runner::swarm
