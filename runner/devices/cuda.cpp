// The CUDA devices of a machine, read through the driver library and NVML. Their C interfaces are declared here, so that no
// CUDA toolkit is needed.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "runner/devices/probes.hpp"

namespace runner {

namespace {

/// A library opened at run time. It stays open until the process ends, because the driver cannot be unloaded safely.
class Library {
 public:
  explicit Library(const std::string& name) : handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {}
  explicit operator bool() const { return handle_ != nullptr; }
  template <typename Function>
  bool find(const char* name, Function*& function) const {
    function = handle_ ? reinterpret_cast<Function*>(dlsym(handle_, name)) : nullptr;
    return function != nullptr;
  }

 private:
  void* handle_;
};

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

  bool load(const Library& library) {
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

/// The part of NVML that reports memory and processes in use (nvml.h). Results are nvmlReturn_t, 0 = success.
struct Nvml {
  struct Memory {
    unsigned long long total, free, used;
  };
  static constexpr int insufficient_size = 7;

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*by_uuid)(const char*, void**) = nullptr;
  int (*memory)(void*, Memory*) = nullptr;
  int (*processes)(void*, unsigned*, void*) = nullptr;
  bool ready = false;

  explicit Nvml(const Library& library) {
    ready = library.find("nvmlInit_v2", init) && library.find("nvmlShutdown", shutdown) &&
            library.find("nvmlDeviceGetHandleByUUID", by_uuid) && library.find("nvmlDeviceGetMemoryInfo", memory) &&
            (library.find("nvmlDeviceGetComputeRunningProcesses_v3", processes) ||
             library.find("nvmlDeviceGetComputeRunningProcesses_v2", processes)) &&
            init() == 0;
  }
  ~Nvml() {
    if (ready) shutdown();
  }
  Nvml(const Nvml&) = delete;

  /// Does not change the device if NVML does not know it.
  void fill(const Driver::Uuid& uuid, CudaDevice& device) const {
    void* handle = nullptr;
    if (!ready ||
        (by_uuid(name("GPU", uuid).c_str(), &handle) != 0 && by_uuid(name("MIG", uuid).c_str(), &handle) != 0))
      return;
    Memory use{};
    if (memory(handle, &use) == 0)
      device.free_bytes = std::min<int64_t>(device.memory_bytes, static_cast<int64_t>(use.free));
    unsigned count = 0;  // a call without a buffer returns only the number
    int result = processes(handle, &count, nullptr);
    if (result == 0 || result == insufficient_size) device.processes = static_cast<int>(count);
  }

 private:
  static std::string name(const char* kind, const Driver::Uuid& uuid) {
    std::string text = std::string(kind) + "-";
    for (int i = 0; i < 16; ++i)
      text += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid.bytes[i]);
    return text;
  }
};

std::string no_device(const std::string& why) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible ? fmt::format("{} (CUDA_VISIBLE_DEVICES is \"{}\")", why, visible) : why;
}

}  // namespace

void read_cuda(const std::string& driver_library, const std::string& nvml_library, Facts& facts) {
  facts.cuda.clear();
  facts.cuda_problem.clear();
  Library library(driver_library);
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
  Nvml nvml{Library(nvml_library)};
  for (int index = 0; index < count; ++index) {
    CudaDevice device{.index = index};
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
      facts.cuda.clear();
      facts.cuda_problem = fmt::format("the NVIDIA driver reports for device {}: {}", index, driver.explain(step));
      return;
    }
    device.name = name;
    device.memory_bytes = device.free_bytes = static_cast<int64_t>(bytes);
    nvml.fill(uuid, device);
    facts.cuda.push_back(device);
  }
}

}  // namespace runner
