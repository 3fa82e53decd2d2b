#include "runner/report/relative_time.hpp"

#include <fmt/format.h>

#include "runner/base/clock.hpp"

namespace runner {

std::string format_ago(double time, double now) {
  const double seconds = now - time;
  constexpr double minute = 60, hour = 60 * minute, day = 24 * hour;
  if (seconds < 5) return "just now";
  if (seconds < minute) return fmt::format("{:.0f} s ago", seconds);
  if (seconds < hour) return fmt::format("{} min ago", static_cast<int>(seconds / minute));
  if (seconds < 2 * day) return fmt::format("{} h ago", static_cast<int>(seconds / hour));
  if (seconds < 30 * day) return fmt::format("{} days ago", static_cast<int>(seconds / day));
  return format_time(time).substr(0, 10);
}

}  // namespace runner
