// Each thread works on the device that it has chosen, or is reported: also where a guard or a stream hides it from the
// call.
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "strategies/collective/libtorch.hpp"
#include "tests/device/support.hpp"

using namespace runner::simulated;

namespace {

using Texts = std::vector<std::string>;

/// What a new thread's `body` is reported for.
Texts reports_of_thread(const std::function<void()>& body) {
  Simulation simulation;
  std::thread(body).join();
  return take_reports();
}

std::string report(const std::string& what, const std::string& chosen = "0 (it has never chosen one)") {
  return "current device: a thread whose current device is " + chosen + " does `" + what + "` on device 2";
}

}  // namespace

TEST_CASE("a thread that has chosen its device is not reported", "[device][threads]") {
  CHECK(reports_of_thread([] {
          c10::impl::VirtualGuardImpl guard(device_type);
          guard.setDevice(device_at(2));
          auto x = torch::ones({8}, on_device(2));
          c10::Event event(device_type);
          event.record(guard.getStream(device_at(2)));
          event.synchronize();
          x.sum().item<float>();
        }) == Texts());
}

TEST_CASE("a thread that never chose a device, or another one, is reported for each call", "[device][threads]") {
  Texts expected{report("allocate"), report("aten::fill_.Scalar")};
  CHECK(reports_of_thread([] { torch::ones({8}, on_device(2)); }) == expected);
  Texts other{report("allocate", "1"), report("aten::fill_.Scalar", "1")};
  CHECK(reports_of_thread([] {
          c10::impl::VirtualGuardImpl(device_type).setDevice(device_at(1));
          torch::ones({8}, on_device(2));
        }) == other);
}

TEST_CASE("a guard does not hide that a thread has not chosen its device", "[device][threads]") {
  CHECK(reports_of_thread([] {
          c10::DeviceGuard guard(device_at(2));
          torch::empty({8}, on_device(2));
        }) == Texts{report("allocate")});
}

TEST_CASE("a thread that only waits for events of another device is reported", "[device][threads]") {
  CHECK(reports_of_thread([] {
          c10::impl::VirtualGuardImpl guard(device_type);
          c10::Event event(device_type);
          event.record(guard.getStream(device_at(2)));
          event.block(guard.getStream(device_at(2)));
          event.synchronize();
        }) == Texts{report("record an event"), report("let a stream wait for an event"), report("wait for an event"),
                    report("destroy an event")});
}

TEST_CASE("a backward pass runs in a thread that has chosen the device", "[device][threads]") {
  CHECK(reports_of_thread([] {
          c10::impl::VirtualGuardImpl(device_type).setDevice(device_at(2));
          auto x = torch::ones({8}, on_device(2)).requires_grad_(true);
          (x * x).sum().backward();
          x.grad().cpu();
        }) == Texts());
}
