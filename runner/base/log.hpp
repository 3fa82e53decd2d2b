// Talk: what the program says to a person, on stderr (stdout is data). Levels and NO_COLOR in one place.
#pragma once
#include <fmt/format.h>

#include <string>

namespace runner::log {

enum class Level { info, warning, error };

/// Whether stderr is a terminal that may get colour (NO_COLOR unset, TERM not dumb).
bool color();
/// Not shown when below RUNNER_LOG=info|warning|error, as it was at the start; info by default.
void write(Level level, const std::string& message);
/// Called before and after each line, so that a progress bar can step aside; null to remove.
void set_interleave(void (*before)(), void (*after)());

template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::warning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace runner::log
