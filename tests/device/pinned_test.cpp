// Pinned memory: the host's mistakes with copies in flight are reported under every policy, also where the values look
// right.
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <catch2/catch_test_macros.hpp>

#include "strategies/collective/libtorch.hpp"
#include "tests/device/support.hpp"

using namespace runner::simulated;

namespace {

using Texts = std::vector<std::string>;

torch::TensorOptions pinned() { return torch::TensorOptions().pinned_memory(true); }

c10::Event recorded() {
  c10::Event event(device_type);
  event.record(c10::impl::VirtualGuardImpl(device_type).getStream(device_at(0)));
  return event;
}

const std::string has_yet_to_read =
    "pinned memory: the host writes what `copy to device` on device 0 default stream has yet to read";
const std::string has_yet_to_write =
    "pinned memory: the host uses what `copy to host` on device 0 default stream has yet to write";

}  // namespace

TEST_CASE("the host may not write pinned memory that a copy to the device has yet to read", "[device][pinned]") {
  for (const auto& [name, policy] : all_policies())
    for (bool waits : {false, true}) {
      INFO(name << ", waits " << waits);
      Simulation simulation(policy);
      auto host = torch::full({1000}, 1.0, pinned());
      auto x = torch::empty({1000}, on_device());
      x.copy_(host, /*non_blocking=*/true);
      auto copied = recorded();
      CHECK(host.sum().item<float>() == 1000);  // reading is allowed
      if (waits) copied.synchronize();
      host.fill_(2);
      float got = x[0].item<float>();
      CHECK(take_reports() == (waits ? Texts() : Texts{has_yet_to_read}));
      if (waits) CHECK(got == 1);
      if (policy.order == Order::lazy && !waits) CHECK(got == 2);
    }
}

TEST_CASE("the host may not use pinned memory that a copy to the host has yet to write", "[device][pinned]") {
  for (const auto& [name, policy] : all_policies())
    for (bool waits : {false, true})
      for (bool reads : {false, true}) {
        INFO(name << ", waits " << waits << ", reads " << reads);
        Simulation simulation(policy);
        auto host = torch::empty({1000}, pinned());
        auto x = torch::ones({1000}, on_device());
        host.copy_(x, /*non_blocking=*/true);
        auto copied = recorded();
        if (waits) copied.synchronize();
        if (reads) {
          float sum = host.sum().item<float>();
          if (waits) CHECK(sum == 1000);
          if (policy.order == Order::lazy && !waits) CHECK(std::isnan(sum));
        } else {
          host.fill_(3);
        }
        CHECK(take_reports() == (waits ? Texts() : Texts{has_yet_to_write}));
      }
}

TEST_CASE("the host may use pinned memory outside the bytes of a copy in progress", "[device][pinned]") {
  Simulation simulation;
  auto host = torch::zeros({1 << 16}, pinned());
  auto x = torch::ones({100}, on_device());
  host.narrow(0, 0, 100).copy_(x, /*non_blocking=*/true);
  auto copied = recorded();
  host.narrow(0, 200, 100).fill_(1);              // on the same page
  host.narrow(0, (1 << 16) - 100, 100).fill_(1);  // on another one
  CHECK(take_reports() == Texts());
  copied.synchronize();
  CHECK(host.sum().item<float>() == 300);
}

TEST_CASE("pinned memory that is freed while a copy uses it is not given out before the copy has ended",
          "[device][pinned]") {
  for (const auto& [name, policy] : all_policies()) {
    INFO(name);
    Simulation simulation(policy);
    auto x = torch::empty({1000}, on_device());
    {
      auto host = torch::full({1000}, 1.0, pinned());
      x.copy_(host, /*non_blocking=*/true);
    }
    auto other = torch::full({1000}, 2.0, pinned());
    CHECK(x.sum().item<float>() == 1000);
    CHECK(take_reports() == Texts());
  }
}

TEST_CASE("pinned memory that has been freed is closed", "[device][pinned]") {
  Simulation simulation;
  auto host = torch::full({1000}, 1.0, pinned());
  volatile float* address = host.data_ptr<float>();
  host.reset();
  float value = *address;
  (void)value;
  CHECK(take_reports() == Texts{"pinned memory: the host uses a block that has been freed"});
}

TEST_CASE("a copy of memory that is not pinned, or of another dtype, reads the host's values at the call",
          "[device][pinned]") {
  Simulation simulation;
  auto pageable = torch::ones({1000}), wide = torch::ones({1000}, pinned().dtype(torch::kFloat64));
  auto x = torch::empty({1000}, on_device()), y = torch::empty({1000}, on_device());
  x.copy_(pageable, /*non_blocking=*/true);
  y.copy_(wide, /*non_blocking=*/true);
  pageable.fill_(2);
  wide.fill_(2);
  CHECK(x.sum().item<float>() == 1000);
  CHECK(y.sum().item<float>() == 1000);
  CHECK(take_reports() == Texts());
}

TEST_CASE("two streams that use one pinned block without a wait are reported", "[device][pinned][race]") {
  Simulation simulation;
  c10::impl::VirtualGuardImpl guard(device_type);
  auto host = torch::ones({1000}, pinned());
  auto x = torch::empty({1000}, on_device()), y = torch::ones({1000}, on_device());
  guard.synchronizeDevice(0);
  x.copy_(host, /*non_blocking=*/true);
  {
    c10::StreamGuard on_side(guard.getStreamFromGlobalPool(device_at(0)));
    host.copy_(y, /*non_blocking=*/true);
  }
  guard.synchronizeDevice(0);
  CHECK(take_reports() ==
        Texts{"race: the write by `copy to host` on device 0 stream 1 is not ordered after the read by `copy "
              "to device` on device 0 default stream"});
}

TEST_CASE("pinned memory is counted as it was asked for and in powers of two, which the allocator keeps",
          "[device][pinned]") {
  Simulation simulation;
  auto before = pinned_statistics();
  auto x = torch::empty({3 << 20}, pinned().dtype(torch::kByte));
  CHECK(x.is_pinned());
  auto during = pinned_statistics();
  CHECK(during.asked == before.asked + (3 << 20));
  CHECK(during.rounded == before.rounded + (4 << 20));
  void* address = x.data_ptr();
  x.reset();
  auto after = pinned_statistics();
  CHECK(after.rounded == before.rounded);
  CHECK(after.rounded_peak == during.rounded);
  CHECK(after.reserved == during.reserved);
  auto again = torch::empty({(4 << 20) - 1}, pinned().dtype(torch::kByte));
  CHECK(again.data_ptr() == address);
  CHECK(pinned_statistics().reserved == during.reserved);
}
