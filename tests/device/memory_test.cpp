// Memory of the simulated device: closed to the host, NaN where nothing was written, limited, counted.
#include <c10/core/DeviceGuard.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "strategies/collective/libtorch.hpp"
#include "tests/device/support.hpp"

using namespace runner::simulated;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("memory of the device is NaN before it is written, and again after it was freed", "[device][memory]") {
  Simulation simulation;
  auto x = torch::empty({1000}, on_device());
  void* address = x.data_ptr();
  CHECK(x.isnan().all().item<bool>());
  x.fill_(1);
  x.reset();
  auto again = torch::empty({1000}, on_device());
  CHECK(again.data_ptr() == address);
  CHECK(again.isnan().all().item<bool>());
  CHECK(torch::empty({1000}, on_device().dtype(torch::kBFloat16)).isnan().all().item<bool>());
}

TEST_CASE("host code that touches the device's memory ends with a signal", "[device][memory]") {
  Simulation simulation;
  auto x = torch::ones({8}, on_device());
  wait_for_devices();
  pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGSEGV, SIG_DFL);
    volatile float value = *static_cast<float*>(x.data_ptr());
    ::_exit(value == 1 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGSEGV);
}

TEST_CASE("a kernel on a tensor whose storage was emptied throws where it is called", "[device][memory]") {
  Simulation simulation;
  auto x = torch::ones({10, 10}, on_device()), part = x.view({100});
  x.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(nullptr, device_at(0)));
  CHECK_THROWS_WITH(part + 1, ContainsSubstring("`aten::add.out` uses a tensor whose storage is empty"));
  CHECK_THROWS_WITH(part.cpu(), ContainsSubstring("`copy to host` uses a tensor whose storage is empty"));
}

TEST_CASE("a kernel that would go beyond a tensor's memory throws where it is called", "[device][memory]") {
  Simulation simulation;
  auto x = torch::ones({128}, on_device()), longer = torch::ones({1000}, on_device());
  longer.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(x.storage().unsafeGetStorageImpl()->set_data_ptr({}));
  CHECK_THROWS_WITH(longer.fill_(1),
                    ContainsSubstring("`aten::fill_.Scalar` goes beyond the end of its tensor's memory"));
}

TEST_CASE("the limit of the memory is kept: allocations beyond it throw OutOfMemoryError", "[device][memory]") {
  Simulation simulation;
  int64_t before = memory_statistics(0).rounded;
  constexpr int64_t mebibyte = 1 << 20;
  set_memory_limit(before + 10 * mebibyte);
  std::vector<torch::Tensor> tensors;
  auto allocate = [&] { tensors.push_back(torch::empty({mebibyte}, on_device().dtype(torch::kByte))); };
  for (int i = 0; i < 10; ++i) allocate();
  CHECK_THROWS_AS(allocate(), c10::OutOfMemoryError);
  tensors.clear();
  allocate();
  CHECK(memory_statistics(0).rounded == before + mebibyte);
}

TEST_CASE("memory that another stream uses is waited for before the limit is reached", "[device][memory]") {
  for (const auto& [name, policy] : all_policies()) {
    INFO(name);
    Simulation simulation(policy);
    c10::impl::VirtualGuardImpl guard(device_type);
    auto x = torch::empty({1 << 20}, on_device());
    auto side = guard.getStreamFromGlobalPool(device_at(0));
    auto deferred = memory_statistics(0).deferred_frees;
    set_memory_limit(memory_statistics(0).rounded);
    guard.synchronizeDevice(0);
    {
      c10::StreamGuard on_side(side);
      x.fill_(1);
    }
    x.record_stream(side);
    x.reset();
    CHECK(memory_statistics(0).deferred_frees == deferred + 1);
    CHECK_NOTHROW(torch::empty({1 << 20}, on_device()));
    CHECK(take_reports() == std::vector<std::string>());
  }
}

TEST_CASE("statistics count what is asked for and what blocks take", "[device][memory]") {
  Simulation simulation;
  auto before = memory_statistics(0);
  auto x = torch::empty({1000}, on_device().dtype(torch::kByte));
  auto during = memory_statistics(0);
  CHECK(during.asked == before.asked + 1000);
  CHECK(during.rounded == before.rounded + 1024);
  CHECK(during.allocations == before.allocations + 1);
  x.reset();
  auto after = memory_statistics(0);
  CHECK(after.asked == before.asked);
  CHECK(after.asked_peak == before.asked + 1000);
  CHECK(after.rounded_peak == before.rounded + 1024);
  reset_peak(0);
  CHECK(memory_statistics(0).asked_peak == before.asked);
  CHECK(memory_statistics(1).asked == 0);
}
