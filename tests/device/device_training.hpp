// A few steps of a tiny model on simulated devices, with the plans that an accelerator gets.
#pragma once
#include "tests/device/device_world.hpp"
#include "tests/device/support.hpp"
#include "tests/support/tiny_training.hpp"

namespace runner::simulated {

using testing::TinyResult;
using testing::TinyRun;

/// The job of a run on simulated devices.
inline Job device_job(const TinyRun& run, const ModelSpec& spec) {
  Job job = testing::tiny_job(run, spec);
  job.accelerator = simulated_accelerator();
  return job;
}

inline TinyRun device_run(const std::string& strategy, int world_size,
                          nlohmann::json options = nlohmann::json::object()) {
  TinyRun run;
  run.strategy = strategy;
  run.world_size = world_size;
  run.options = std::move(options);
  run.steps = 3;
  return run;
}

inline TinyResult train_on_devices(const TinyRun& run) { return testing::train_tiny(run, run_on_devices); }

}  // namespace runner::simulated
