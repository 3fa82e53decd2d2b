// Errors and exit codes: the three kinds of failure that the program distinguishes.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace runner {

/// Exit codes of the process. `runner --help` documents them, and a test checks the table.
enum class ExitCode : int {
  done = 0,
  run_failed = 1,    ///< the run itself failed (a rank crashed, the loss became NaN and the recipe says stop ...)
  usage = 2,         ///< the user's mistake: command line or recipe
  preempted = 3,     ///< stopped from outside after a checkpoint; `runner resume` continues
  environment = 4,   ///< hardware, disk, network, missing packages
  interrupted = 130  ///< Ctrl-C
};

/// An error with its exit code. The message is complete: what is wrong, where, and what would work.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

template <typename... Args>
Error usage_error(fmt::format_string<Args...> format, Args&&... args) {
  return Error(ExitCode::usage, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Error environment_error(fmt::format_string<Args...> format, Args&&... args) {
  return Error(ExitCode::environment, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
Error run_error(fmt::format_string<Args...> format, Args&&... args) {
  return Error(ExitCode::run_failed, fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void check_failed(const char* expression, const char* file, int line, const std::string& message);

}  // namespace runner

/// Checks for bugs in this program: throws std::logic_error with file:line. Active in release builds too.
#define RUNNER_CHECK(condition, ...) \
  (static_cast<bool>(condition)      \
       ? (void)0                     \
       : ::runner::check_failed(#condition, __FILE__, __LINE__, ::fmt::format("" __VA_ARGS__)))
