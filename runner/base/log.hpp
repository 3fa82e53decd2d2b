// Talk: what the program says to a person, on stderr (stdout is data). Levels and NO_COLOR in one place.
#pragma once
#include <fmt/format.h>

#include <string>

namespace runner::log {

enum class Level { debug, info, warning, error };

/// Messages below `level` are not shown; the default is info. RUNNER_LOG=debug|info|warning|error sets it at start.
void set_level(Level level);
/// Whether stderr is a terminal that may get colour (NO_COLOR unset, TERM not dumb).
bool color();
void write(Level level, const std::string& message);
/// Called before and after each line, so that a progress bar can step aside; null to remove.
void set_interleave(void (*before)(), void (*after)());

template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}
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
