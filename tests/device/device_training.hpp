// A few steps of a tiny model on simulated devices, with the plans that an accelerator gets.
#pragma once
#include "tests/device/device_world.hpp"
#include "tests/device/support.hpp"
#include "tests/support/strategy_forms.hpp"

namespace runner::simulated {

using testing::device_run;
using testing::TinyResult;
using testing::TinyRun;

/// The job of a run on simulated devices.
inline Job device_job(const TinyRun& run, const ModelSpec& spec) {
  Job job = testing::tiny_job(run, spec);
  job.accelerator = simulated_accelerator();
  return job;
}

inline TinyResult train_on_devices(const TinyRun& run) { return testing::train_tiny(run, run_on_devices); }

}  // namespace runner::simulated
