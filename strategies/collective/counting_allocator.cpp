#include "strategies/collective/counting_allocator.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "runner/base/text.hpp"

namespace runner {

namespace {

/// The header before every block.
struct alignas(64) Header {
  int64_t bytes;
  MemoryAccount* account;
};

thread_local MemoryAccount* account_of_thread = nullptr;

void release(void* data) {
  if (!data) return;
  auto* header = static_cast<Header*>(data) - 1;
  header->account->add(-header->bytes);
  std::free(header);
}

class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    MemoryAccount& account = account_of_thread ? *account_of_thread : process_account();
    void* block = nullptr;
    if (::posix_memalign(&block, alignof(Header), bytes + sizeof(Header)) != 0)
      TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory: a tensor needs ", format_bytes(bytes),
                       ", which this host does not have; the tensors of this rank already need ",
                       format_bytes(account.current()));
    auto* header = new (block) Header{static_cast<int64_t>(bytes), &account};
    account.add(header->bytes);
    void* data = header + 1;
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

}  // namespace

void MemoryAccount::add(int64_t bytes) {
  int64_t now = current_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t seen = peak_.load(std::memory_order_relaxed);
  while (now > seen && !peak_.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
  }
}

MemoryAccount& process_account() {
  static MemoryAccount account;
  return account;
}

AccountScope::AccountScope(MemoryAccount& account) : previous_(std::exchange(account_of_thread, &account)) {
  install_counting_allocator();
}

AccountScope::~AccountScope() { account_of_thread = previous_; }

void install_counting_allocator() {
  static CountingAllocator allocator;
  c10::SetAllocator(c10::kCPU, &allocator, 255);
}

}  // namespace runner
