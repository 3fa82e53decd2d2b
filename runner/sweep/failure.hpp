// Classifies the reason why a trial failed.
#pragma once
#include <string>

namespace runner::sweep {

/// How a trial's process ended.
struct TrialExit {
  int code = 0, signal = 0;
  std::string kind;     ///< kind of the run's first `failed` event (launch/events.hpp); empty: there was none
  std::string message;  ///< of that event; otherwise how the process ended, with the end of its log
  bool timed_out = false;
};

/// out_of_memory | nan | user_error | device | timeout | preempted | other.
std::string failure_class(const TrialExit& exit);

/// Whether quick failures of this class suggest a problem of the device rather than of the trial.
bool blames_device(const std::string& failure_class);

}  // namespace runner::sweep
