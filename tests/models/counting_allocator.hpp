// Counts the bytes of CPU tensors while it lives, as torch.cuda.memory_allocated does on a GPU.
#pragma once
#include <c10/core/CPUAllocator.h>
#include <malloc.h>
#include <torch/torch.h>

#include <atomic>
#include <cstdlib>

namespace runner::testing {

class CountingAllocator : public c10::Allocator {
 public:
  CountingAllocator() : previous_(c10::GetAllocator(c10::kCPU)) {
    bytes_ = peak_ = 0;
    c10::SetAllocator(c10::kCPU, this, 255);
  }
  ~CountingAllocator() override { c10::SetAllocator(c10::kCPU, previous_, 255); }
  CountingAllocator(const CountingAllocator&) = delete;
  CountingAllocator& operator=(const CountingAllocator&) = delete;

  int64_t bytes() const { return bytes_; }
  int64_t peak() const { return peak_; }

  c10::DataPtr allocate(size_t size) override {
    if (size == 0) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    // The size stands in a header of one alignment unit; the context is the data pointer, as raw_allocate asks.
    auto* block = static_cast<char*>(std::aligned_alloc(alignment, (size + 2 * alignment - 1) / alignment * alignment));
    TORCH_CHECK(block, "out of memory");
    *reinterpret_cast<size_t*>(block) = size;
    bytes_ += static_cast<int64_t>(size);
    int64_t now = bytes_;
    for (int64_t seen = peak_; now > seen && !peak_.compare_exchange_weak(seen, now);) {
    }
    void* data = block + alignment;
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* destination, const void* source, size_t count) const override {
    default_copy_data(destination, source, count);
  }

 private:
  static constexpr size_t alignment = 64;
  static void release(void* data) {
    if (!data) return;
    char* block = static_cast<char*>(data) - alignment;
    bytes_ -= static_cast<int64_t>(*reinterpret_cast<size_t*>(block));
    std::free(block);
  }

  c10::Allocator* previous_;
  static inline std::atomic<int64_t> bytes_{0}, peak_{0};
};

}  // namespace runner::testing
