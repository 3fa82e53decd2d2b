#include "runner/train/stall_watch.hpp"

#include <algorithm>
#include <vector>

#include "runner/base/blocked_signals.hpp"
#include "runner/base/clock.hpp"

namespace runner {

StallWatch::StallWatch(Options options, std::function<void(const Stall&)> report)
    : options_(options), report_(std::move(report)) {
  if (options_.factor <= 0) return;
  BlockedSignals blocked;
  thread_ = std::thread([this] { loop(); });
}

StallWatch::~StallWatch() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StallWatch::step_begins(int64_t step) {
  std::lock_guard lock(mutex_);
  step_ = step;
  begun_ = steady_seconds();
  reported_ = false;
}

void StallWatch::step_ends() {
  constexpr size_t window = 64;
  std::lock_guard lock(mutex_);
  if (begun_ > 0) seconds_.push_back(steady_seconds() - begun_);
  if (seconds_.size() > window) seconds_.pop_front();
  begun_ = 0;
}

double StallWatch::median() const {
  std::vector<double> values(seconds_.begin(), seconds_.end());
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void StallWatch::loop() {
  constexpr size_t enough = 3;  // steps; the first one may take long
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, options_.look_every, [this] { return stop_; })) {
    if (begun_ == 0 || reported_ || seconds_.size() < enough) continue;
    const double expected = median(), seconds = steady_seconds() - begun_;
    if (seconds < std::max(options_.factor * expected, options_.least.count())) continue;
    reported_ = true;
    const Stall stall{.step = step_, .seconds = seconds, .expected = expected};
    lock.unlock();
    report_(stall);
    lock.lock();
  }
}

}  // namespace runner
