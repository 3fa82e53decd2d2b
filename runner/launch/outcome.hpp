// The outcome of a run.
#pragma once
#include <string>

#include "runner/base/error.hpp"

namespace runner {

struct Outcome {
  ExitCode code = ExitCode::done;
  std::string status;  ///< finished | failed | interrupted | preempted
  /// The rank that failed first, and how: its `failed` event, its signal or its exit code.
  std::string first_cause;
  std::string kind = "";  ///< kind of the failure, as in its `failed` event (events.hpp)
  int restarts = 0;
  /// The attempt of an elastic run has ended because nodes leave, join or are lost: training goes on with those that are there.
  bool regroup = false;
};

}  // namespace runner
