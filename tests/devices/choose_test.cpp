// Device choice as a table: request, machine, and the exact result.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>

#include "runner/base/error.hpp"
#include "runner/devices/devices.hpp"

using namespace runner;
using Catch::Matchers::Message;
using Kind = DeviceRequest::Kind;

namespace {

constexpr int64_t GiB = 1ll << 30;

Facts gpus(int count) {
  Facts facts;
  facts.cuda_module = true;
  for (int i = 0; i < count; ++i)
    facts.devices.push_back({.index = i,
                             .name = "A",
                             .memory_bytes = 80 * GiB,
                             .free_bytes = 79 * GiB,
                             .major = 8,
                             .minor = 0,
                             .processes = 0});
  return facts;
}

Facts no_gpu() {
  Facts facts;
  facts.cuda_problem = "no NVIDIA driver (libcuda.so.1 not found)";
  return facts;
}

Recipe::Devices wish(const std::string& accelerator, DeviceRequest request, int64_t cpu_processes = 1) {
  Recipe::Devices devices;
  devices.accelerator = accelerator;
  devices.devices = std::move(request);
  devices.cpu_processes = cpu_processes;
  return devices;
}

const DeviceRequest automatic{};
DeviceRequest count(int n) { return {.kind = Kind::count, .count = n, .indices = {}}; }
DeviceRequest unused(int n) { return {.kind = Kind::free_count, .count = n, .indices = {}}; }
DeviceRequest exactly(std::vector<int> indices) {
  return {.kind = Kind::indices, .count = 0, .indices = std::move(indices)};
}

const std::string one_gpu = "1 CUDA device (0: A, 80.0 GiB, 79.0 GiB free)";

void check_refused(const Recipe::Devices& devices, const Facts& facts, ExitCode code, const std::string& message) {
  CHECK_THROWS_MATCHES(choose_devices(devices, facts), Error, Message(message));
  try {
    choose_devices(devices, facts);
  } catch (const Error& error) {
    CHECK(error.code() == code);
  }
}

}  // namespace

TEST_CASE("auto takes all CUDA devices, or cpu_processes ranks without CUDA devices") {
  DeviceChoice on_gpu = choose_devices(wish("auto", automatic, 4), gpus(2));
  CHECK(on_gpu.accelerator.type == "cuda");
  CHECK(on_gpu.device_indices == std::vector{0, 1});
  CHECK(on_gpu.count == 2);
  CHECK(on_gpu.reason == "all of 2 CUDA devices");

  DeviceChoice on_cpu = choose_devices(wish("auto", automatic, 4), no_gpu());
  CHECK(on_cpu.accelerator.type == "cpu");
  CHECK(on_cpu.device_indices.empty());
  CHECK(on_cpu.count == 4);
  CHECK(on_cpu.reason == "4 ranks on the CPU: no CUDA device can be used: no NVIDIA driver (libcuda.so.1 not found)");
}

TEST_CASE("the reason states when cpu_processes overrides a number of devices") {
  auto both = choose_devices(wish("auto", count(4), 3), no_gpu());
  CHECK(both.count == 3);
  CHECK(both.reason ==
        "3 ranks on the CPU: no CUDA device can be used: no NVIDIA driver (libcuda.so.1 not found); cpu_processes = 3 "
        "takes precedence over devices = 4 there");
  CHECK(choose_devices(wish("auto", count(4), 4), no_gpu()).reason.find("precedence") == std::string::npos);
}

TEST_CASE("auto falls back to the CPU when this build has no CUDA module, cuda does not") {
  Facts facts = gpus(1);
  facts.cuda_module = false;
  const std::string why = "this build of runner has no CUDA module, so it cannot use " + one_gpu +
                          "; run scripts/setup --cuda and build again";
  CHECK(choose_devices(wish("auto", automatic), facts).reason == "1 rank on the CPU: " + why);
  check_refused(wish("cuda", automatic), facts, ExitCode::environment, "accelerator = \"cuda\", but " + why);
}

TEST_CASE("a number takes the first devices, -1 all of them") {
  CHECK(choose_devices(wish("cuda", count(2)), gpus(4)).device_indices == std::vector{0, 1});
  CHECK(choose_devices(wish("cuda", count(2)), gpus(4)).reason == "the first 2 of 4 CUDA devices");
  CHECK(choose_devices(wish("cuda", count(-1)), gpus(3)).count == 3);
  check_refused(wish("auto", count(2)), gpus(1), ExitCode::environment, "devices = 2, but this machine has " + one_gpu);
  check_refused(wish("cuda", count(2)), no_gpu(), ExitCode::environment,
                "accelerator = \"cuda\", but no CUDA device can be used: no NVIDIA driver (libcuda.so.1 not found)");
}

TEST_CASE("exact indices keep their order") {
  CHECK(choose_devices(wish("cuda", exactly({3, 1})), gpus(4)).device_indices == std::vector{3, 1});
  check_refused(wish("cuda", exactly({0, 1})), gpus(1), ExitCode::environment,
                "devices = [0, 1]: there is no device 1; this machine has " + one_gpu);
}

TEST_CASE("free:N skips devices in use") {
  Facts facts = gpus(4);
  facts.devices[0].processes = 1;
  facts.devices[2].free_bytes = 10 * GiB;
  facts.devices[3].processes = -1;
  CHECK(choose_devices(wish("auto", unused(2)), facts).device_indices == std::vector{1, 3});
  CHECK(choose_devices(wish("auto", unused(-1)), facts).reason == "CUDA devices that nobody computes on: [1, 3]");
  Recipe::Devices small = wish("auto", unused(3));
  small.memory_limit = 8 * GiB;
  CHECK(choose_devices(small, facts).device_indices == std::vector{1, 2, 3});

  facts.devices.resize(2);
  check_refused(wish("cuda", unused(2)), facts, ExitCode::environment,
                "devices = \"free:2\": only [1] is free here (free means no compute process and at least 80 % of its "
                "memory unused); this "
                "machine has 2 CUDA devices (0: A, 80.0 GiB, 79.0 GiB free, 1 process; 1: A, 80.0 GiB, 79.0 GiB free)");
  facts.devices[1].processes = 2;
  small.memory_limit = 100 * GiB;
  check_refused(
      small, facts, ExitCode::environment,
      "devices = \"free:3\": no CUDA device is free here (free means no compute process and at least 100.0 GiB "
      "(devices.memory_limit) unused); this machine has 2 CUDA devices (0: A, 80.0 GiB, 79.0 GiB free, 1 process; 1: "
      "A, 80.0 "
      "GiB, 79.0 GiB free, 2 processes)");
}

TEST_CASE("on the CPU a count is a number of ranks") {
  CHECK(choose_devices(wish("cpu", automatic, 3), gpus(2)).count == 3);
  CHECK(choose_devices(wish("cpu", count(2)), gpus(2)).count == 2);
  CHECK(choose_devices(wish("cpu", count(2)), gpus(2)).reason == "2 ranks on the CPU");
  CHECK(choose_devices(wish("cpu", count(-1), 2), no_gpu()).count == 2);
  CHECK(choose_devices(wish("auto", count(8), 2), no_gpu()).count == 2);  // 8 applies to GPUs only
  CHECK(choose_devices(wish("cpu", count(8), 2), no_gpu()).count == 8);   // 8 applies to the CPU
  check_refused(wish("cpu", automatic, 0), no_gpu(), ExitCode::usage, "cpu_processes = 0: it takes at least 1");
}

TEST_CASE("the number of TPUs is the one that the recipe requests") {
  const std::string unknown =
      ": what devices a PJRT plug-in has is not known before a run; write their number, devices = N";
  CHECK(choose_devices(wish("tpu", count(8), 2), no_gpu()).count == 8);
  CHECK(choose_devices(wish("tpu", count(8)), gpus(1)).reason == "8 devices of the PJRT plug-in, as the recipe says");
  for (const int64_t inherited : {1, 4}) {
    check_refused(wish("tpu", count(-1), inherited), no_gpu(), ExitCode::usage, "devices = -1" + unknown);
    check_refused(wish("tpu", automatic, inherited), no_gpu(), ExitCode::usage, "devices = \"auto\"" + unknown);
    check_refused(wish("tpu", exactly({0, 1}), inherited), no_gpu(), ExitCode::usage, "devices = [0, 1]" + unknown);
  }
}

TEST_CASE("devices requested for CUDA are never replaced by the CPU") {
  check_refused(
      wish("cpu", exactly({0})), gpus(1), ExitCode::usage,
      "devices = [0] names CUDA devices, but accelerator = \"cpu\"; write cpu_processes = N for N ranks on the CPU");
  check_refused(
      wish("auto", exactly({0})), no_gpu(), ExitCode::environment,
      "devices = [0] names CUDA devices, but no CUDA device can be used: no NVIDIA driver (libcuda.so.1 not found)");
  check_refused(wish("auto", unused(1)), no_gpu(), ExitCode::environment,
                "devices = \"free:1\" names CUDA devices, but no CUDA device can be used: no NVIDIA driver "
                "(libcuda.so.1 not found)");
}

TEST_CASE("requests that no machine can fulfil are usage errors") {
  check_refused(wish("auto", count(0)), gpus(1), ExitCode::usage,
                "devices = 0: a number of devices is 1 or more, or -1 for all");
  check_refused(wish("auto", unused(0)), gpus(1), ExitCode::usage,
                "devices = \"free:0\": a number of devices is 1 or more, or -1 for all");
  check_refused(wish("auto", exactly({})), gpus(1), ExitCode::usage,
                "devices = []: name at least one device, or write \"auto\"");
  check_refused(wish("auto", exactly({1, -2})), gpus(1), ExitCode::usage,
                "devices = [1, -2]: device indices begin at 0");
  check_refused(wish("auto", exactly({1, 0, 1})), gpus(2), ExitCode::usage,
                "devices = [1, 0, 1]: device 1 is named twice; each rank needs a device of its own");
}
