// Clocks: wall time for records, steady time for durations.
#pragma once
#include <chrono>
#include <ctime>
#include <string>

namespace runner {

/// Seconds since the Unix epoch, for records.
inline double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}
/// Seconds on a clock that never jumps, for durations.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
/// "2026-11-21 06:54:03" in local time.
inline std::string format_time(double wall_seconds) {
  auto whole = static_cast<std::time_t>(wall_seconds);
  std::tm local{};
  localtime_r(&whole, &local);
  char buffer[32];
  std::strftime(buffer, sizeof buffer, "%Y-%m-%d %H:%M:%S", &local);
  return buffer;
}

}  // namespace runner
