// Counts the memory of CPU tensors exactly, as torch.cuda.max_memory_allocated does on a GPU.
#pragma once
#include <atomic>
#include <cstdint>

namespace runner {

/// Counts the bytes of tensors. A block is subtracted from the account on which it was allocated, whichever thread frees it. An
/// account must outlive its tensors.
class MemoryAccount {
 public:
  int64_t current() const { return current_.load(std::memory_order_relaxed); }
  int64_t peak() const { return peak_.load(std::memory_order_relaxed); }
  /// Resets the peak to what is in use now.
  void reset_peak() { peak_.store(current()); }
  void add(int64_t bytes);

 private:
  std::atomic<int64_t> current_{0}, peak_{0};
};

/// The account of all threads without an AccountScope.
MemoryAccount& process_account();

/// Counts the allocations of this thread on `account` while the scope exists, so that ranks that are threads have separate accounts.
/// Installs the allocator.
class AccountScope {
 public:
  explicit AccountScope(MemoryAccount& account);
  ~AccountScope();
  AccountScope(const AccountScope&) = delete;

 private:
  MemoryAccount* previous_;
};

/// Replaces LibTorch's CPU allocator by one that counts (64-byte aligned, with a header of one cache line). Existing tensors are not
/// counted.
void install_counting_allocator();

}  // namespace runner
