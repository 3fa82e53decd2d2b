// Makes SIGINT, SIGTERM, SIGHUP and SIGTSTP available through a descriptor that can be polled.
#pragma once
#include <signal.h>

#include <array>
#include <vector>

#include "runner/base/descriptor.hpp"

namespace runner {

/// The value of a SIGTERM (sigqueue) by which a user stops a run on the web page: nobody has preempted it.
inline constexpr int stopped_on_page = 0x70616765;

/// Installs signal handlers that write the signal's number into a pipe. A signal that was ignored stays ignored (nohup,
/// background jobs of scripts). SIGCHLD is set to its default: if a launcher ignores it, the exit codes of workers would be
/// lost. The destructor restores all handlers. There may be only one object at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  int fd() const { return read_end_.get(); }
  /// Returns the signals received since the last call, oldest first.
  std::vector<int> take();
  /// Whether one of them was sent with stopped_on_page.
  bool from_page() const;

 private:
  static constexpr std::array handled_{SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGCHLD};
  std::array<struct sigaction, handled_.size()> before_{};
  Descriptor read_end_, write_end_;
};

}  // namespace runner
