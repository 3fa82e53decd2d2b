// How a run ended.
#pragma once
#include <string>

#include "runner/base/error.hpp"

namespace runner {

struct Outcome {
  ExitCode code = ExitCode::done;
  std::string status;  ///< finished | failed | interrupted | preempted
  /// One message: the rank and what happened to it first (its `failed` event, its signal, its exit code).
  std::string first_cause;
  std::string kind = "";  ///< of a failure: as in its `failed` event (events.hpp)
  int restarts = 0;
};

}  // namespace runner
