// An amount of memory that threads share: a thread waits until its part is free.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

namespace runner {

class SharedMemoryLimit {
 public:
  /// A part of the memory, until it is destroyed.
  class Part {
   public:
    Part() = default;
    Part(Part&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)), bytes_(other.bytes_) {}
    Part& operator=(Part&& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Part() {
      if (owner_) owner_->give_back(bytes_);
    }

   private:
    friend SharedMemoryLimit;
    Part(SharedMemoryLimit* owner, int64_t bytes) : owner_(owner), bytes_(bytes) {}
    SharedMemoryLimit* owner_ = nullptr;
    int64_t bytes_ = 0;
  };

  explicit SharedMemoryLimit(int64_t bytes) : bytes_(bytes) {}
  /// Waits until `bytes` are free, in the order of the calls. A part that is larger than all of the memory gets all of it. A thread must not
  /// wait while it has a part.
  Part take(int64_t bytes);

 private:
  void give_back(int64_t bytes);
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t bytes_, used_ = 0;
  uint64_t last_ticket_ = 0, served_ = 0;
};

}  // namespace runner
