// SIGINT, SIGTERM, SIGHUP and SIGTSTP as something to poll, for as long as the object lives.
#pragma once
#include <signal.h>

#include <array>
#include <vector>

#include "runner/base/descriptor.hpp"

namespace runner {

/// Handlers write the signal's number into a pipe. A signal that was ignored stays ignored (nohup, background jobs of
/// scripts). SIGCHLD is set to its default, since a launcher that ignores it would take our workers' exit codes away.
/// The destructor restores everything. At most one object at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  int fd() const { return read_end_.get(); }
  /// The signals that came since the last call, oldest first.
  std::vector<int> take();

 private:
  static constexpr std::array handled_{SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCHLD};
  std::array<struct sigaction, handled_.size()> before_{};
  Descriptor read_end_, write_end_;
};

}  // namespace runner
