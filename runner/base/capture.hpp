// Runs a program to its end, or to a deadline, and captures its output.
#pragma once
#include <chrono>
#include <string>
#include <vector>

namespace runner {

struct CaptureOptions {
  std::chrono::milliseconds timeout;
  std::vector<std::string> environment = {};  ///< "NAME=VALUE", added to that of this process
  bool with_stderr = false;                   ///< otherwise the program's stderr is discarded
};

struct Captured {
  int status = -1;          ///< exit status; -1: it was not started, or a signal ended it
  bool too_late = false;    ///< it had not ended at the deadline and was killed
  std::string output = "";  ///< or why the program was not started
};

/// Searches the program `command[0]` in PATH. Its stdin is /dev/null.
Captured capture(std::vector<std::string> command, const CaptureOptions& options);

}  // namespace runner
