// The CUDA devices of a machine, read through the driver library and NVML. The driver's C interface is declared here, so that no
// CUDA toolkit is needed.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "runner/devices/dynamic_library.hpp"
#include "runner/devices/nvml.hpp"
#include "runner/devices/probes.hpp"

namespace runner {

namespace {

/// The part of the CUDA driver interface that lists devices (cuda.h). Results are CUresult, 0 = success.
struct Driver {
  struct Uuid {
    unsigned char bytes[16];
  };
  static constexpr int capability_major = 75, capability_minor = 76;  // CUdevice_attribute

  int (*init)(unsigned) = nullptr;
  int (*device_count)(int*) = nullptr;
  int (*device_get)(int*, int) = nullptr;
  int (*device_name)(char*, int, int) = nullptr;
  int (*device_memory)(size_t*, int) = nullptr;
  int (*device_attribute)(int*, int, int) = nullptr;
  int (*device_uuid)(Uuid*, int) = nullptr;
  int (*error_string)(int, const char**) = nullptr;

  bool load(const DynamicLibrary& library) {
    return library.find("cuInit", init) && library.find("cuDeviceGetCount", device_count) &&
           library.find("cuDeviceGet", device_get) && library.find("cuDeviceGetName", device_name) &&
           library.find("cuDeviceTotalMem_v2", device_memory) &&
           library.find("cuDeviceGetAttribute", device_attribute) &&
           (library.find("cuDeviceGetUuid_v2", device_uuid) || library.find("cuDeviceGetUuid", device_uuid)) &&
           library.find("cuGetErrorString", error_string);
  }

  std::string explain(int result) const {
    const char* text = nullptr;
    error_string(result, &text);
    return text ? text : "error " + std::to_string(result);
  }
};

/// "GPU-...", as NVML names it; `kind`: "GPU" or "MIG".
std::string uuid_text(const char* kind, const Driver::Uuid& uuid) {
  std::string text = std::string(kind) + "-";
  for (int i = 0; i < 16; ++i)
    text += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid.bytes[i]);
  return text;
}

/// Adds what NVML knows about a device.
void add_use(const Nvml& nvml, const Driver::Uuid& uuid, DeviceFacts& device) {
  for (const char* kind : {"GPU", "MIG"}) {
    device.uuid = uuid_text(kind, uuid);
    void* handle = nvml.device(device.uuid);
    if (!handle) continue;
    const auto free = nvml.read(handle).memory_free_bytes;
    if (free) device.free_bytes = std::min(device.memory_bytes, *free);
    device.processes = nvml.processes(handle);
    return;
  }
  device.uuid = uuid_text("GPU", uuid);
}

std::string no_device(const std::string& why) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible ? fmt::format("{} (CUDA_VISIBLE_DEVICES is \"{}\")", why, visible) : why;
}

}  // namespace

void read_cuda(const std::string& driver_library, const std::string& nvml_library, Facts& facts) {
  facts.devices.clear();
  facts.cuda_problem.clear();
  const DynamicLibrary library(driver_library);
  if (!library) {
    facts.cuda_problem = fmt::format("no NVIDIA driver ({} not found)", driver_library);
    return;
  }
  Driver driver;
  if (!driver.load(library)) {
    facts.cuda_problem = fmt::format("{} lacks functions that every driver since CUDA 10 has", driver_library);
    return;
  }
  int count = 0;
  int result = driver.init(0);
  if (result == 0) result = driver.device_count(&count);
  if (result != 0) {
    facts.cuda_problem = no_device("the NVIDIA driver reports: " + driver.explain(result));
    return;
  }
  if (count == 0) {
    facts.cuda_problem = no_device("the NVIDIA driver shows no device");
    return;
  }
  const Nvml nvml(nvml_library);
  for (int index = 0; index < count; ++index) {
    DeviceFacts device{.index = index};
    int handle = 0;
    char name[256] = "";
    size_t bytes = 0;
    Driver::Uuid uuid{};
    for (int step : {driver.device_get(&handle, index), driver.device_name(name, sizeof name, handle),
                     driver.device_memory(&bytes, handle),
                     driver.device_attribute(&device.major, Driver::capability_major, handle),
                     driver.device_attribute(&device.minor, Driver::capability_minor, handle),
                     driver.device_uuid(&uuid, handle)}) {
      if (step == 0) continue;
      facts.devices.clear();
      facts.cuda_problem = fmt::format("the NVIDIA driver reports for device {}: {}", index, driver.explain(step));
      return;
    }
    device.name = name;
    device.memory_bytes = device.free_bytes = static_cast<int64_t>(bytes);
    add_use(nvml, uuid, device);
    facts.devices.push_back(device);
  }
}

}  // namespace runner
