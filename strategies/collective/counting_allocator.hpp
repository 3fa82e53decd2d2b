// Counts the memory of CPU tensors exactly, as torch.cuda.max_memory_allocated does on a GPU.
//
// Memory that a CPU library uses inside one operator is counted apart: scratch memory of matrix products, copies of
// images in other layouts, buffers of fused attention. Its size depends on the instruction set and on the version of
// the library, so no plan foretells it.
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

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
/// The account of what libraries use inside operators, of all ranks of this process.
MemoryAccount& library_account();

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

/// Around one operator: what this thread allocates while the scope exists is on library_account(). At the end, what still exists moves to
/// the account of the thread: these are the operator's results. Scopes do not nest.
class LibraryScope {
 public:
  LibraryScope();
  ~LibraryScope();
  LibraryScope(const LibraryScope&) = delete;
  void allocated(void* block) { blocks_.push_back(block); }
  void freed(void* block) { std::erase(blocks_, block); }

 private:
  std::vector<void*> blocks_;  ///< what was allocated and still exists, with its header
};

/// Replaces LibTorch's CPU allocator by one that counts (64-byte aligned, with a header of one cache line). Existing tensors are not
/// counted. Computes a small product, by which the allocations of oneDNN become known.
void install_counting_allocator();

}  // namespace runner
