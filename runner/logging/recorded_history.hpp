// What the ledger has of a run when an attempt begins, for loggers that write it again.
#pragma once
#include <map>
#include <string>

#include "runner/logging/run_listener.hpp"

namespace runner {

/// Values of one step by metric.
using StepValues = std::map<std::string, double>;

/// All points of earlier attempts that count, by step.
std::map<int64_t, StepValues> recorded_history(const AttemptStart& attempt);

/// The start of a run in Unix seconds, from its id "20261121-065403-k3f9"; now for other texts.
double start_of_run(const std::string& run);

}  // namespace runner
