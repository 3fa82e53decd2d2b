// The race detector finds each kind of missing wait between streams, under every policy.
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "strategies/collective/libtorch.hpp"
#include "tests/device/support.hpp"

using namespace runner::simulated;
using Catch::Matchers::ContainsSubstring;

namespace {

const c10::impl::VirtualGuardImpl& guard() {
  static c10::impl::VirtualGuardImpl impl(device_type);
  return impl;
}

torch::Tensor ones(int64_t elements = 1000) {
  return torch::ones({elements}, torch::TensorOptions().device(device_at(0)));
}

/// On `side`, after the work that was entered on the default stream: copies x to y. Returns an event after the copy.
c10::Event copy_after_default(const c10::Stream& side, const torch::Tensor& x, const torch::Tensor& y) {
  c10::Event computed(device_type), copied(device_type);
  computed.record(guard().getStream(device_at(0)));
  computed.block(side);
  c10::StreamGuard on_side(side);
  y.copy_(x, /*non_blocking=*/true);
  copied.record(side);
  return copied;
}

struct Waits {
  bool side_waits = true, main_waits = true;
};

/// x is computed on the main stream, copied to y on a side stream, and y is used on the main stream again.
float copy_on_side_stream(Waits waits) {
  auto main = guard().getStream(device_at(0)), side = guard().getStreamFromGlobalPool(device_at(0));
  auto x = ones() * 3, y = torch::empty_like(x);
  c10::Event computed(device_type), copied(device_type);
  computed.record(main);
  if (waits.side_waits) computed.block(side);
  {
    c10::StreamGuard on_side(side);
    y.copy_(x, /*non_blocking=*/true);
  }
  copied.record(side);
  if (waits.main_waits) copied.block(main);
  float sum = y.sum().item<float>();
  copied.synchronize();  // y and x are freed after their use
  return sum;
}

}  // namespace

TEST_CASE("streams that wait for each other are right and give no reports", "[device]") {
  for (const auto& [name, policy] : all_policies()) {
    INFO(name);
    Simulation simulation(policy);
    CHECK(copy_on_side_stream({}) == 3000);
    CHECK(take_reports() == std::vector<std::string>());
  }
}

TEST_CASE("a read that does not wait for the write before it is reported", "[device][race]") {
  for (const auto& [name, policy] : all_policies()) {
    INFO(name);
    Simulation simulation(policy);
    copy_on_side_stream({.main_waits = false});
    auto reports = take_reports();
    REQUIRE(reports.size() == 1);
    CHECK(reports[0] ==
          "race: the read by `aten::sum.IntList_out` on device 0 default stream is not ordered after the write by "
          "`copy` on "
          "device 0 stream 1");
  }
}

TEST_CASE("a side stream that does not wait for its input is reported, and reads NaN if it is early",
          "[device][race]") {
  for (const auto& [name, policy] : all_policies()) {
    INFO(name);
    Simulation simulation(policy);
    float sum = copy_on_side_stream({.side_waits = false});
    auto reports = take_reports();
    REQUIRE(!reports.empty());
    CHECK_THAT(reports[0],
               ContainsSubstring("the read by `copy` on device 0 stream 1 is not ordered after the write by"));
    if (policy.order == Order::eager)
      CHECK(sum == 3000);  // the values look right: the order does not decide what is found
  }
}

TEST_CASE("a write that does not wait for the read before it is reported", "[device][race]") {
  for (const auto& [name, policy] : all_policies()) {
    INFO(name);
    Simulation simulation(policy);
    auto x = ones(), y = ones();
    auto copied = copy_after_default(guard().getStreamFromGlobalPool(device_at(0)), x, y);
    x.fill_(2);
    copied.synchronize();
    auto reports = take_reports();
    REQUIRE(reports.size() == 1);
    CHECK_THAT(reports[0],
               ContainsSubstring("the write by `aten::fill_.Scalar` on device 0 default stream is not ordered after "
                                 "the read by `copy` on device 0 stream 1"));
  }
}

TEST_CASE("memory that is freed while another stream uses it is reported, unless that stream is recorded",
          "[device][race]") {
  for (const auto& [name, policy] : all_policies())
    for (bool recorded : {false, true}) {
      INFO(name << ", recorded " << recorded);
      Simulation simulation(policy);
      auto main = guard().getStream(device_at(0)), side = guard().getStreamFromGlobalPool(device_at(0));
      auto x = ones(), y = ones();
      auto copied = copy_after_default(side, x, y);
      if (recorded) x.record_stream(side);
      x.reset();
      auto z = ones() * 7;  // may get x's memory
      copied.block(main);
      float sum = y.sum().item<float>();
      auto reports = take_reports();
      if (recorded) {
        CHECK(reports == std::vector<std::string>());
        CHECK(sum == 1000);
      } else {
        REQUIRE(!reports.empty());
        CHECK_THAT(reports[0],
                   ContainsSubstring("the write by `free` on device 0 default stream is not ordered after the read by "
                                     "`copy` on device 0 stream 1"));
      }
    }
}

TEST_CASE("parts of one tensor that do not overlap may be used at the same time", "[device][race]") {
  Simulation simulation;
  auto main = guard().getStream(device_at(0)), side = guard().getStreamFromGlobalPool(device_at(0));
  auto x = ones();
  c10::Event computed(device_type), written(device_type);
  computed.record(main);
  computed.block(side);
  {
    c10::StreamGuard on_side(side);
    x.narrow(0, 500, 500).fill_(5);
    written.record(side);
  }
  x.narrow(0, 0, 500).fill_(4);
  written.block(main);
  CHECK(x.sum().item<float>() == 4500);
  CHECK(take_reports() == std::vector<std::string>());
}

TEST_CASE("what the host has waited for comes before what it enters next", "[device]") {
  for (const auto& [name, policy] : all_policies()) {
    INFO(name);
    Simulation simulation(policy);
    auto side = guard().getStreamFromGlobalPool(device_at(0));
    auto x = ones();
    guard().synchronizeStream(guard().getStream(device_at(0)));
    c10::Event written(device_type);
    {
      c10::StreamGuard on_side(side);
      x.mul_(2);
      written.record(side);
    }
    written.synchronize();
    CHECK(written.query());
    CHECK(x.sum().item<float>() == 2000);
    CHECK(take_reports() == std::vector<std::string>());
  }
}

TEST_CASE("the lazy policy runs nothing before the host waits, the eager one everything", "[device]") {
  for (auto [order, passed] : {std::pair(Order::lazy, false), std::pair(Order::eager, true)}) {
    Simulation simulation({order});
    auto x = ones();
    c10::Event entered(device_type);
    entered.record(guard().getStream(device_at(0)));
    CHECK(entered.query() == passed);
    guard().synchronizeDevice(0);
    CHECK(entered.query());
  }
}
