#include "runner/base/clock.hpp"

#include <ctime>

namespace runner {

std::string format_time(double wall_seconds) {
  auto whole = static_cast<std::time_t>(wall_seconds);
  std::tm local{};
  localtime_r(&whole, &local);
  char buffer[32];
  std::strftime(buffer, sizeof buffer, "%Y-%m-%d %H:%M:%S", &local);
  return buffer;
}

}  // namespace runner
