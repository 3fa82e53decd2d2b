// One rank of `runner doctor --calibrate`: times steps of small models, memory copies, matrix products and collectives
// while all ranks work. The results go to the supervisor as events. runner/selection fits rates to them.
#pragma once
#include "runner/base/error.hpp"

namespace runner {

/// Reads the world from the environment, as run_worker does. `seconds`: approximate duration on an idle machine.
/// Disturbed measurements are repeated for at most the same time again. Rank 0 emits an event for each measurement that
/// settled:
///   calibration  {what: "step", family, precision, strategy, work: [...], traffic: [...], seconds}
///                work: step_work of one step; traffic: {collective, calls, bytes}
///   calibration  {what: "collective", name, ranks, bytes, seconds}
///   calibration  {what: "product", rows, width, flops_per_s}
///   calibration  {what: "copy", bytes, bytes_per_s}
/// and at the end
///   calibration  {what: "verdict", disturbed}
///                disturbed: why the measurements cannot be used; empty if they can
ExitCode run_calibration(double seconds);

}  // namespace runner
