#include "runner/data/shared_memory_limit.hpp"

#include <algorithm>

namespace runner {

SharedMemoryLimit::Part SharedMemoryLimit::take(int64_t bytes) {
  bytes = std::clamp<int64_t>(bytes, 0, bytes_);
  std::unique_lock lock(mutex_);
  const uint64_t ticket = last_ticket_++;
  changed_.wait(lock, [&] { return served_ == ticket && bytes <= bytes_ - used_; });
  ++served_;
  used_ += bytes;
  changed_.notify_all();  // the next one may fit, too
  return {this, bytes};
}

void SharedMemoryLimit::give_back(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
  changed_.notify_all();
}

}  // namespace runner
