// After which time a rank that does not go on is reported.
#pragma once
#include <algorithm>
#include <chrono>

namespace runner {

/// `timeout`: train.timeout, after which collectives give up. Minutes, so that devices are not idle for long; and long enough for work
/// that ranks do alone.
constexpr std::chrono::milliseconds hang_limit(std::chrono::milliseconds timeout) {
  return std::min<std::chrono::milliseconds>(std::chrono::minutes(2), timeout / 2);
}

}  // namespace runner
