// Why a trial failed, as one of a few classes.
#pragma once
#include <string>

namespace runner::sweep {

/// How a trial's process ended.
struct TrialExit {
  int code = 0, signal = 0;
  std::string kind;     ///< of the run's first `failed` event (launch/events.hpp); empty: there was none
  std::string message;  ///< the run's, or the end of what it said
  bool timed_out = false;
};

/// out_of_memory | nan | user_error | device | timeout | preempted | other.
std::string failure_class(const TrialExit& exit);

/// Whether failures of this class, when they come fast, speak against the device rather than the trial.
bool blames_device(const std::string& failure_class);

}  // namespace runner::sweep
