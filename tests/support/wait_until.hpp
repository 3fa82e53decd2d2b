// Waits for a condition that another process or thread makes true.
#pragma once

#include <chrono>
#include <thread>

namespace runner::testing {

/// Polls `done()` until it is true or the time is over. Returns the last result of `done()`.
template <typename Condition>
bool wait_until(Condition&& done, double seconds) {
  auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return done();
}

}  // namespace runner::testing
