// Child processes that die with their parent, and the end of what they wrote to a log.
#pragma once
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "runner/base/descriptor.hpp"

namespace runner {

struct ChildCommand {
  std::string program;
  std::vector<std::string> arguments;
  /// On top of ours, of which what a supervisor above us told its own worker is left out.
  std::map<std::string, std::string> environment = {};
  int out = -1, log = -1;           ///< its stdout and stderr; stdin is /dev/null
  std::vector<int> inherited = {};  ///< further descriptors that it keeps, at the same number
};

/// The child leads a process group of its own, so that Ctrl-C on the terminal reaches the parent only, and handles no
/// signal. The kernel kills it when the thread that called this ends (PR_SET_PDEATHSIG), also by kill -9 of the parent.
/// Throws Error(environment): no process, or the program cannot be started.
pid_t start_child(const ChildCommand& command);

/// A log file that one child after another appends to.
class ChildLog {
 public:
  /// Throws Error(environment) where it cannot be written.
  explicit ChildLog(std::string path);
  /// To be handed to the child, and closed then.
  Descriptor take() { return std::move(descriptor_); }
  const std::string& path() const { return path_; }
  /// The last `lines` lines of what came after this object was made, of its last 4 KiB.
  std::string tail(size_t lines) const;

 private:
  std::string path_;
  Descriptor descriptor_;
  off_t begin_;
};

/// A pipe whose read end does not block. Throws Error(environment).
struct ChildPipe {
  ChildPipe();
  Descriptor read, write;
};

}  // namespace runner
