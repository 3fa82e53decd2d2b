// One rank of `runner doctor --calibrate`: real steps of small models, memory copies, matrix products and collectives,
// timed while all ranks work. What was measured goes to the supervisor as events; fitting rates to it is selection's.
#pragma once
#include "runner/base/error.hpp"

namespace runner {

/// Reads the world from the environment, as run_worker does. `seconds`: about how long it may take on a quiet machine;
/// what other work disturbs is repeated for as long again. Events of rank 0, of what settled:
///   calibration  {what: "step", family, precision, strategy, work: [...], traffic: [...], seconds}
///                work: step_work of one step; traffic: {collective, calls, bytes}
///   calibration  {what: "collective", name, ranks, bytes, seconds}
///   calibration  {what: "product", rows, width, flops_per_s}
///   calibration  {what: "copy", bytes, bytes_per_s}
/// and at last
///   calibration  {what: "verdict", disturbed}
///                disturbed: why none of this can be used; empty: it can
ExitCode run_calibration(double seconds);

}  // namespace runner
