// The CUDA probe with a fake driver, and without any driver.
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

#include "runner/devices/probes.hpp"

using namespace runner;

namespace {
/// Sets an environment variable for one scope.
struct Variable {
  const char* name;
  Variable(const char* variable, const char* value) : name(variable) { setenv(variable, value, 1); }
  ~Variable() { unsetenv(name); }
};
}  // namespace

TEST_CASE("devices, memory and processes come from the driver and NVML") {
  Facts facts;
  read_cuda(FAKE_DRIVER, FAKE_DRIVER, facts);
  REQUIRE(facts.devices.size() == 2);
  CHECK(facts.cuda_problem.empty());
  CHECK(facts.devices[0].name == "Fake 0");
  CHECK(facts.devices[0].memory_bytes == 1000);
  CHECK(facts.devices[0].free_bytes == 250);
  CHECK(facts.devices[0].processes == 3);
  CHECK(facts.devices[0].major == 9);
  CHECK(facts.devices[0].bf16());
  CHECK(facts.devices[1].index == 1);
  CHECK(facts.devices[1].free_bytes == 1000);  // a MIG device: its free memory is limited by its total memory
  CHECK(facts.devices[1].processes == 0);
}

TEST_CASE("without NVML, all memory of a device counts as free and its processes are unknown") {
  Facts facts;
  read_cuda(FAKE_DRIVER, "libno-such-nvml.so", facts);
  REQUIRE(facts.devices.size() == 2);
  CHECK(facts.devices[0].free_bytes == 1000);
  CHECK(facts.devices[0].processes == -1);
}

TEST_CASE("the reason for having no CUDA device is the driver's message") {
  Facts facts;
  facts.devices.resize(1);
  read_cuda("libno-such-driver.so.1", "libno-such-nvml.so", facts);
  CHECK(facts.devices.empty());
  CHECK(facts.cuda_problem == "no NVIDIA driver (libno-such-driver.so.1 not found)");

  read_cuda("libm.so.6", "libno-such-nvml.so", facts);
  CHECK(facts.cuda_problem == "libm.so.6 lacks functions that every driver since CUDA 10 has");

  Variable hidden("CUDA_VISIBLE_DEVICES", "7");
  {
    Variable none("FAKE_CUDA_DEVICES", "0");
    read_cuda(FAKE_DRIVER, FAKE_DRIVER, facts);
    CHECK(facts.cuda_problem == "the NVIDIA driver shows no device (CUDA_VISIBLE_DEVICES is \"7\")");
  }
  {
    Variable failing("FAKE_CUDA_RESULT", "100");
    read_cuda(FAKE_DRIVER, FAKE_DRIVER, facts);
    CHECK(facts.cuda_problem ==
          "the NVIDIA driver reports: no CUDA-capable device is detected (CUDA_VISIBLE_DEVICES is \"7\")");
  }
  {
    Variable failing("FAKE_CUDA_RESULT", "999");
    read_cuda(FAKE_DRIVER, FAKE_DRIVER, facts);
    CHECK(facts.cuda_problem == "the NVIDIA driver reports: error 999 (CUDA_VISIBLE_DEVICES is \"7\")");
  }
}
