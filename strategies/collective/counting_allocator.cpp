#include "strategies/collective/counting_allocator.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <malloc.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace runner {

namespace {

constexpr size_t header_bytes = 64;

std::atomic<int64_t> current{0}, peak{0};

void count(int64_t bytes) {
  int64_t now = current.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
  }
}

void release(void* data) {
  if (!data) return;
  auto* block = static_cast<char*>(data) - header_bytes;
  int64_t bytes;
  std::memcpy(&bytes, block, sizeof bytes);
  current.fetch_sub(bytes, std::memory_order_relaxed);
  std::free(block);
}

class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    void* block = nullptr;
    if (::posix_memalign(&block, 64, bytes + header_bytes) != 0)
      TORCH_CHECK_WITH(OutOfMemoryError, false, "the host has no ", bytes, " bytes more for a tensor (", current.load(), " are in tensors now)");
    auto size = static_cast<int64_t>(bytes);
    std::memcpy(block, &size, sizeof size);
    count(size);
    void* data = static_cast<char*>(block) + header_bytes;
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

}  // namespace

void install_counting_allocator() {
  static CountingAllocator allocator;
  c10::SetAllocator(c10::kCPU, &allocator, 255);
}

int64_t current_tensor_bytes() { return current.load(); }
int64_t peak_tensor_bytes() { return peak.load(); }
void reset_peak_tensor_bytes() { peak.store(current.load()); }

int64_t peak_resident_bytes() {
  FILE* file = std::fopen("/proc/self/status", "re");
  if (!file) return 0;
  char line[256];
  long kilobytes = 0;
  while (std::fgets(line, sizeof line, file))
    if (std::sscanf(line, "VmHWM: %ld", &kilobytes) == 1) break;
  std::fclose(file);
  return int64_t{kilobytes} * 1024;
}

void tune_malloc() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 512 << 20);
  ::mallopt(M_TOP_PAD, 16 << 20);
}

}  // namespace runner
