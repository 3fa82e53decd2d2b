// Messages for people, on stderr (stdout is for data), with levels and NO_COLOR.
#pragma once
#include <fmt/format.h>

#include <functional>
#include <string>

namespace runner::log {

enum class Level { info, warning, error };

/// Whether stderr is a terminal that may get colour (NO_COLOR unset, TERM not dumb).
bool color();
/// Messages below the level RUNNER_LOG=info|warning|error are not shown. The variable is read once, at the start; default: info.
void write(Level level, const std::string& message);
/// Called before and after each line, so that a progress bar can be hidden meanwhile. Null removes it.
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

// A copy of what stderr gets, for the log of a run: messages, and the lines of the progress display.

/// `take` is called with each line, on any thread, also with messages below the level of RUNNER_LOG. Null removes it; it is not called
/// afterwards.
void set_copy(std::function<void(const std::string& line)> take);
/// Passes on a line that was printed without write().
void copy(const std::string& line);

}  // namespace runner::log
