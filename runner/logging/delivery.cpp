#include "runner/logging/delivery.hpp"

#include <utility>

#include "runner/base/blocked_signals.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"

namespace runner {

Delivery::Delivery(std::string place, Send send, std::function<void()> stop, Retries retries)
    : place_(std::move(place)), send_(std::move(send)), stop_sending_(std::move(stop)), retries_(retries) {
  BlockedSignals blocked;
  thread_ = std::thread([this] { loop(); });
}

Delivery::~Delivery() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  stop_sending_();
  thread_.join();
}

void Delivery::add(std::string message) {
  constexpr size_t most = 64;
  {
    std::lock_guard lock(mutex_);
    if (queue_.size() >= most) queue_.erase(queue_.begin() + 1);  // the first one is being delivered
    queue_.push_back(std::move(message));
  }
  changed_.notify_all();
}

void Delivery::finish(const Patience& patience) {
  std::unique_lock lock(mutex_);
  const auto what = fmt::format("{} to be delivered to {}", counted(std::ssize(queue_), "notification"), place_);
  if (patience.wait(changed_, lock, what, [this] { return queue_.empty(); })) return;
  stop_ = true;
  changed_.notify_all();
  warn(fmt::format("{} could not be delivered to {} in time", counted(std::ssize(queue_), "notification"), place_));
}

std::vector<std::string> Delivery::take_problems() {
  std::lock_guard lock(mutex_);
  return std::exchange(problems_, {});
}

void Delivery::warn(const std::string& problem) {
  log::warning("{}", problem);
  problems_.push_back(problem);
}

bool Delivery::pause(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds time) {
  return !changed_.wait_for(lock, time, [this] { return stop_; });
}

void Delivery::failed(const std::string& problem, int tries) {
  if (!std::exchange(failing_, true))
    warn(fmt::format("a notification could not be delivered to {} ({}): {}", place_,
                     tries == 1 ? "1 try" : fmt::format("{} tries", tries), problem));
}

void Delivery::delivered() {
  if (std::exchange(failing_, false)) log::info("notifications are delivered to {} again", place_);
}

void Delivery::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    const std::string message = queue_.front();
    auto wait = retries_.first_pause;
    for (int tries = 1;; ++tries, wait *= 2) {
      lock.unlock();
      Result result;
      try {
        result = send_(message);
      } catch (const std::exception& error) {  // the machine has no processes or descriptors left
        result = {.problem = error.what(), .again = true};
      }
      lock.lock();
      if (stop_) return;
      if (result.problem.empty()) {
        delivered();
        break;
      }
      if (!result.again || tries >= retries_.tries) {
        failed(result.problem, tries);
        break;
      }
      if (!pause(lock, wait)) return;
    }
    queue_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace runner
