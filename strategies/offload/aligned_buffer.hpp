// Memory for direct I/O: its address and its size are multiples of 4096.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "runner/base/round_up.hpp"

namespace runner {

/// At least `bytes` bytes, uninitialised; move-only.
class AlignedBuffer {
 public:
  static constexpr int64_t alignment = 4096;
  AlignedBuffer() = default;
  explicit AlignedBuffer(int64_t bytes) : size_(round_up(bytes, alignment)) {
    if (size_ == 0) return;
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, static_cast<size_t>(size_))));
    if (!data_) throw std::bad_alloc();
  }
  AlignedBuffer(AlignedBuffer&& other) noexcept : size_(std::exchange(other.size_, 0)), data_(std::move(other.data_)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    data_ = std::move(other.data_);
    return *this;
  }

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  std::span<std::byte> bytes() { return {data_.get(), static_cast<size_t>(size_)}; }
  std::span<const std::byte> bytes() const { return {data_.get(), static_cast<size_t>(size_)}; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  int64_t size_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace runner
