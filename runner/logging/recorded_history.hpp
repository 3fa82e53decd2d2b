// The ledger's record of a run when an attempt begins, for loggers that write it again.
#pragma once
#include <functional>
#include <map>
#include <string>

#include "runner/logging/run_listener.hpp"

namespace runner {

/// Values of one step by metric.
using StepValues = std::map<std::string, double>;

/// Calls `take` for each step of earlier attempts that counts, in their order. Needs 24 bytes of memory for each of their points.
void each_recorded_step(const AttemptStart& attempt,
                        const std::function<void(int64_t step, const StepValues& values)>& take);

/// The start of a run in Unix seconds, from its id "20261121-065403-k3f9"; now for other texts.
double start_of_run(const std::string& run);

}  // namespace runner
