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
  /// Added to our environment. Variables that a supervisor set for its own worker are removed.
  std::map<std::string, std::string> environment = {};
  int out = -1, log = -1;           ///< its stdout and stderr
  std::vector<int> inherited = {};  ///< further descriptors that the child keeps, with the same numbers
  int in = -1;                      ///< its stdin; -1: /dev/null
};

/// The child leads a new process group, so that Ctrl-C on the terminal reaches the parent only. It has no signal handlers. The
/// kernel kills it when the thread that called this function ends (PR_SET_PDEATHSIG), also after kill -9 of the parent.
/// Throws Error(environment) if there can be no new process, or if the program cannot be started.
pid_t start_child(const ChildCommand& command);

/// A log file that one child after another appends to.
class ChildLog {
 public:
  /// `heading`: a line that is written first, to separate this child's output from that of earlier ones; empty: none. It begins a line
  /// also if the output of an earlier child ended within one. Throws Error(environment) where it cannot be written.
  explicit ChildLog(std::string path, const std::string& heading = "");
  /// A descriptor for the child. The caller closes it afterwards.
  Descriptor take() { return std::move(descriptor_); }
  const std::string& path() const { return path_; }
  /// The last `lines` lines that were written after this object was made, within the last 4 KiB.
  std::string tail(size_t lines) const;
  /// If the file is larger than `bytes_max`, removes its middle: the first and the last eighth of `bytes_max` stay, with a line between
  /// them that says how much is missing, and the last heading of an attempt (log_heading.hpp) that was removed. The child may go on
  /// writing; what it writes during this call may be lost. Does nothing if the file cannot be changed.
  void bound(int64_t bytes_max);

 private:
  std::string path_;
  Descriptor descriptor_;
  off_t begin_;
  int64_t removed_ = 0;  ///< bytes, by this object
};

/// A pipe whose read end does not block. Throws Error(environment).
struct ChildPipe {
  ChildPipe();
  Descriptor read, write;
};

}  // namespace runner
