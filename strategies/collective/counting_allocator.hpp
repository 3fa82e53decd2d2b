// Tensor memory on CPU, counted exactly: what torch.cuda.max_memory_allocated tells on a GPU.
#pragma once
#include <atomic>
#include <cstdint>

namespace runner {

/// Bytes of the tensors that were allocated on its account; a block goes back to the account it came from, whichever thread frees
/// it. An account must outlive its tensors.
class MemoryAccount {
 public:
  int64_t current() const { return current_.load(std::memory_order_relaxed); }
  int64_t peak() const { return peak_.load(std::memory_order_relaxed); }
  /// The peak starts again from what is in use now.
  void reset_peak() { peak_.store(current()); }
  void add(int64_t bytes);

 private:
  std::atomic<int64_t> current_{0}, peak_{0};
};

/// The account of every thread that has no AccountScope.
MemoryAccount& process_account();

/// While it lives, what this thread allocates counts on `account`: ranks that are threads are told apart. Installs the allocator.
class AccountScope {
 public:
  explicit AccountScope(MemoryAccount& account);
  ~AccountScope();
  AccountScope(const AccountScope&) = delete;

 private:
  MemoryAccount* previous_;
};

/// Replaces LibTorch's CPU allocator by one that counts (64-byte aligned, a header of one line in front). Tensors that are there
/// already are not counted.
void install_counting_allocator();
/// VmHWM of this process: the peak of its resident memory.
int64_t peak_resident_bytes();

/// Makes glibc keep freed blocks instead of giving them back to the system: a training step frees and takes the same sizes again, and
/// each return costs page faults. Call before threads start.
void tune_malloc();
/// From now on blocks from 4 MiB on go back when they are freed: slower, but nothing is kept in holes between others. For
/// runs that offload because memory is short.
void return_large_blocks();

}  // namespace runner
