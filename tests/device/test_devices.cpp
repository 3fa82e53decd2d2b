// The simulated devices for the suite that real devices also run.
#include <catch2/catch_test_macros.hpp>

#include "strategies/collective/libtorch.hpp"
#include "tests/device/device_world.hpp"
#include "tests/device/machine.hpp"
#include "tests/device/simulation.hpp"
#include "tests/support/device_suite.hpp"
#include "tests/support/staged_groups.hpp"
#include "tests/support/thread_world.hpp"

namespace runner::testing {

namespace {

using namespace simulated;

/// Runs ranks on devices and fails the test if these have something to report.
Launch without_reports(const Launch& launch) {
  return [launch](int world_size, const std::function<void(World&)>& body) {
    Simulation simulation;
    launch(world_size, body);
    wait_for_devices();
    CHECK(take_reports() == std::vector<std::string>());
  };
}

/// All ranks on the first device.
void run_on_one_device(int world_size, const std::function<void(World&)>& body) {
  run_ranks(world_size, [&](World& world) {
    choose_device(0);
    world.accelerator = simulated_accelerator();
    world.device = device_at(0);
    stage_groups(world, device_type);
    body(world);
  });
}

}  // namespace

std::vector<TestDevice> test_devices() {
  return {{.name = "a simulated device for each rank",
           .accelerator = simulated_accelerator(),
           .ranks_most = device_count,
           .exact = true,
           .launch = without_reports(run_on_devices),
           .memory =
               [](int rank) {
                 auto statistics = memory_statistics(rank);
                 return MemoryUse{statistics.asked, statistics.asked_peak};
               },
           .reset_peak = reset_peak,
           .pinned =
               [] {
                 auto statistics = pinned_statistics();
                 return MemoryUse{statistics.rounded, statistics.rounded_peak};
               }},
          {.name = "one simulated device for all ranks",
           .accelerator = simulated_accelerator(),
           .ranks_most = device_count,
           .exact = true,
           .launch = without_reports(run_on_one_device)}};
}

}  // namespace runner::testing
