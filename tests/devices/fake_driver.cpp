// A fake libcuda and libnvidia-ml in one library, with two devices, for tests on machines without a GPU.
// FAKE_CUDA_RESULT is the result of cuInit. FAKE_CUDA_DEVICES sets the number of devices.
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {
int setting(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}
struct Memory {
  unsigned long long total, free, used;
};
int handles[2] = {0, 1};
}  // namespace

extern "C" {
int cuInit(unsigned) { return setting("FAKE_CUDA_RESULT", 0); }
int cuDeviceGetCount(int* count) {
  *count = setting("FAKE_CUDA_DEVICES", 2);
  return 0;
}
int cuDeviceGet(int* handle, int index) {
  *handle = 100 + index;
  return 0;
}
int cuDeviceGetName(char* name, int size, int handle) {
  std::snprintf(name, size, "Fake %d", handle - 100);
  return 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = 1000;
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 9 : 0;
  return 0;
}
int cuDeviceGetUuid_v2(unsigned char* uuid, int handle) {
  std::memset(uuid, 0, 16);
  uuid[0] = 0xab;
  uuid[15] = static_cast<unsigned char>(handle - 100);
  return 0;
}
int cuGetErrorString(int result, const char** text) {
  *text = result == 100 ? "no CUDA-capable device is detected" : nullptr;
  return 0;
}

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
/// Device 0 is a full GPU, device 1 is a MIG device.
int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  const char* names[2] = {"GPU-ab000000-0000-0000-0000-000000000000", "MIG-ab000000-0000-0000-0000-000000000001"};
  for (int i = 0; i < 2; ++i)
    if (std::strcmp(uuid, names[i]) == 0) return *handle = &handles[i], 0;
  return 6;  // NVML_ERROR_NOT_FOUND
}
int nvmlDeviceGetMemoryInfo(void* handle, Memory* memory) {
  memory->free = *static_cast<int*>(handle) == 0 ? 250 : 5000;
  memory->used = 750;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* handle, unsigned* rates) {
  if (*static_cast<int*>(handle) != 0) return 3;  // NVML_ERROR_NOT_SUPPORTED
  rates[0] = 87;
  rates[1] = 40;
  return 0;
}
int nvmlDeviceGetPowerUsage(void* handle, unsigned* milliwatts) {
  *milliwatts = 312500;
  return *static_cast<int*>(handle) == 0 ? 0 : 3;
}
int nvmlDeviceGetTemperature(void* handle, int, unsigned* celsius) {
  *celsius = 61;
  return *static_cast<int*>(handle) == 0 ? 0 : 3;
}
int nvmlDeviceGetClockInfo(void* handle, int kind, unsigned* mhz) {
  *mhz = kind == 1 ? 1980 : 0;
  return *static_cast<int*>(handle) == 0 ? 0 : 3;
}
/// The reasons are those of FAKE_THROTTLE_REASONS.
int nvmlDeviceGetCurrentClocksThrottleReasons(void* handle, unsigned long long* reasons) {
  *reasons = static_cast<unsigned long long>(setting("FAKE_THROTTLE_REASONS", 0));
  return *static_cast<int*>(handle) == 0 ? 0 : 3;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count, void*) {
  *count = *static_cast<int*>(handle) == 0 ? 3 : 0;
  return *count ? 7 : 0;  // NVML_ERROR_INSUFFICIENT_SIZE: the caller's array has no room for them
}
}
