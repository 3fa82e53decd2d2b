// Predicted times from the table of devices, for tests.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "runner/selection/choice.hpp"

namespace runner {

/// For jobs on nodes of `devices` devices.
inline StepClock table_clock(const std::string& kind, int devices = 8) {
  const auto known = std::make_shared<std::map<DType, std::optional<Rates>>>();
  StepClock clock;
  clock.rates = [=](const Job& job) -> const Rates* {
    const auto [rates, fresh] = known->try_emplace(job.precision.compute);
    if (fresh) rates->second = rates_of(*find_device_kind(kind), job.precision.compute, devices);
    return rates->second ? &*rates->second : nullptr;
  };
  clock.step_time = [rates_of_job = clock.rates](const Candidate& candidate) -> std::optional<StepTime> {
    const Rates* rates = rates_of_job(candidate.job);
    const auto load = rates ? step_load(candidate) : std::nullopt;
    return load ? step_time(*load, *rates) : std::nullopt;
  };
  return clock;
}

}  // namespace runner
