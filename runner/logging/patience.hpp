// How long the end of a run waits for servers and other programs.
#pragma once
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include "runner/base/log.hpp"

namespace runner {

/// All that listens to a run shares one, so that the waits do not add up.
struct Patience {
  using Clock = std::chrono::steady_clock;
  Clock::time_point deadline = Clock::now() + std::chrono::seconds(20);
  /// Whether the user wants to wait no longer; asked ten times a second. Once true, it stays true. Null: never.
  std::function<bool()> stop = {};

  bool over() const { return Clock::now() >= deadline || (stop && stop()); }
  Patience at_most(Clock::duration time) const { return {std::min(deadline, Clock::now() + time), stop}; }

  /// Waits until `done()`, which is asked under the lock. After a second, prints what it waits for: "1 notification to be delivered".
  /// False: it was given up.
  template <typename Done>
  bool wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, const std::string& what,
            Done&& done) const {
    constexpr std::chrono::milliseconds look_every{100}, silent_for{1000};
    const auto begun = Clock::now();
    for (bool told = false; !done(); changed.wait_for(lock, look_every)) {
      if (over()) return false;
      if (told || Clock::now() - begun < silent_for) continue;
      told = true;
      log::info("waiting for {}{}", what, stop ? " (Ctrl-C ends the wait)" : "");
    }
    return true;
  }
};

}  // namespace runner
