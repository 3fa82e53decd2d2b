// A copy of what stderr gets: messages, and the lines of the progress display. For the log of a run.
#pragma once
#include <functional>
#include <string>

namespace runner::log {

/// `take` is called with each line, on any thread, also with messages below the level of RUNNER_LOG. Null removes it; it is not called
/// afterwards.
void set_copy(std::function<void(const std::string& line)> take);
/// Passes on a line that was printed without write().
void copy(const std::string& line);

}  // namespace runner::log
