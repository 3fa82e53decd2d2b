// Runs a program to its end, or to a deadline, and captures its output.
#pragma once
#include <chrono>
#include <limits>
#include <stop_token>
#include <string>
#include <vector>

namespace runner {

struct CaptureOptions {
  std::chrono::milliseconds timeout;
  std::vector<std::string> environment = {};              ///< "NAME=VALUE", added to that of this process
  bool with_stderr = false;                               ///< otherwise the program's stderr is discarded
  size_t bytes_max = std::numeric_limits<size_t>::max();  ///< of the output; the program is killed when it writes more
  std::stop_token stop = {};                              ///< ends the program as the deadline does
};

struct Captured {
  int status = -1;          ///< exit status; -1: it was not started, or a signal ended it
  bool too_late = false;    ///< it had not ended at the deadline, or when it had to stop, and was killed
  bool cut = false;         ///< it wrote more than `bytes_max` and was killed; `output` has that many bytes
  std::string output = "";  ///< or why the program was not started
};

/// Searches the program `command[0]` in PATH. Its stdin is /dev/null, it blocks no signals, and it leads a process group of its own.
Captured capture(std::vector<std::string> command, const CaptureOptions& options);

}  // namespace runner
