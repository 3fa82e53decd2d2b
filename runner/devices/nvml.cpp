#include "runner/devices/nvml.hpp"

#include "runner/devices/dynamic_library.hpp"

namespace runner {

/// Functions of nvml.h. Results are nvmlReturn_t, 0 = success. The functions of the second group are optional.
struct Nvml::Functions {
  struct Memory {
    unsigned long long total, free, used;
  };
  struct Utilization {
    unsigned gpu, memory;
  };
  static constexpr int insufficient_size = 7;          // NVML_ERROR_INSUFFICIENT_SIZE
  static constexpr int on_die = 0;                     // NVML_TEMPERATURE_GPU
  static constexpr int multiprocessors = 1;            // NVML_CLOCK_SM
  static constexpr unsigned long long power_or_heat =  // SwPowerCap, HwSlowdown, SwThermal-, HwThermal-, HwPowerBrake-
      0x4 | 0x8 | 0x20 | 0x40 | 0x80;

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*by_uuid)(const char*, void**) = nullptr;
  int (*memory)(void*, Memory*) = nullptr;
  int (*processes)(void*, unsigned*, void*) = nullptr;

  int (*utilization)(void*, Utilization*) = nullptr;
  int (*power)(void*, unsigned*) = nullptr;  // milliwatts
  int (*temperature)(void*, int, unsigned*) = nullptr;
  int (*clock)(void*, int, unsigned*) = nullptr;
  int (*throttle)(void*, unsigned long long*) = nullptr;

  bool load(const DynamicLibrary& library) {
    library.find("nvmlDeviceGetUtilizationRates", utilization);
    library.find("nvmlDeviceGetPowerUsage", power);
    library.find("nvmlDeviceGetTemperature", temperature);
    library.find("nvmlDeviceGetClockInfo", clock);
    library.find("nvmlDeviceGetCurrentClocksThrottleReasons", throttle);
    return library.find("nvmlInit_v2", init) && library.find("nvmlShutdown", shutdown) &&
           library.find("nvmlDeviceGetHandleByUUID", by_uuid) && library.find("nvmlDeviceGetMemoryInfo", memory) &&
           (library.find("nvmlDeviceGetComputeRunningProcesses_v3", processes) ||
            library.find("nvmlDeviceGetComputeRunningProcesses_v2", processes)) &&
           init() == 0;
  }
};

Nvml::Nvml(const std::string& library) : functions_(std::make_unique<Functions>()) {
  if (!functions_->load(DynamicLibrary(library))) functions_.reset();
}

Nvml::~Nvml() {
  if (functions_) functions_->shutdown();
}

void* Nvml::device(const std::string& uuid) const {
  void* handle = nullptr;
  return functions_ && functions_->by_uuid(uuid.c_str(), &handle) == 0 ? handle : nullptr;
}

GpuReading Nvml::read(void* device) const {
  GpuReading reading;
  if (!functions_ || !device) return reading;
  const auto& nvml = *functions_;
  if (Functions::Memory use{}; nvml.memory(device, &use) == 0) {
    reading.memory_used_bytes = static_cast<int64_t>(use.used);
    reading.memory_free_bytes = static_cast<int64_t>(use.free);
  }
  if (Functions::Utilization busy{}; nvml.utilization && nvml.utilization(device, &busy) == 0)
    reading.utilization_percent = busy.gpu;
  unsigned value = 0;
  if (nvml.power && nvml.power(device, &value) == 0) reading.power_watts = value / 1e3;
  if (nvml.temperature && nvml.temperature(device, Functions::on_die, &value) == 0) reading.temperature_celsius = value;
  if (nvml.clock && nvml.clock(device, Functions::multiprocessors, &value) == 0) reading.clock_mhz = value;
  if (unsigned long long reasons = 0; nvml.throttle && nvml.throttle(device, &reasons) == 0)
    reading.throttled = (reasons & Functions::power_or_heat) != 0;
  return reading;
}

int Nvml::processes(void* device) const {
  unsigned count = 0;  // a call without a buffer returns only the number
  if (!functions_ || !device) return -1;
  const int result = functions_->processes(device, &count, nullptr);
  return result == 0 || result == Functions::insufficient_size ? static_cast<int>(count) : -1;
}

}  // namespace runner
