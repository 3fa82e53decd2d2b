#include "strategies/collective/counting_allocator.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "runner/base/text.hpp"
#include "strategies/collective/libtorch.hpp"

namespace runner {

namespace {

/// The header before every block.
struct alignas(64) Header {
  int64_t bytes;
  MemoryAccount* account;
  const void* caller;  ///< the place in LibTorch that called allocate()
};

thread_local MemoryAccount* account_of_thread = nullptr;
thread_local LibraryScope* library_scope = nullptr;

MemoryAccount& thread_account() { return account_of_thread ? *account_of_thread : process_account(); }

/// The place in LibTorch from which oneDNN's allocations come (c10::Allocator::raw_allocate() is inlined there). Tensors come from others.
std::atomic<const void*> library_caller = nullptr;

void release(void* data) {
  if (!data) return;
  auto* header = static_cast<Header*>(data) - 1;
  if (library_scope) library_scope->freed(header);
  header->account->add(-header->bytes);
  std::free(header);
}

/// Frees what was allocated by raw_allocate(), which only libraries call.
void release_raw(void* data) {
  if (data) library_caller = (static_cast<Header*>(data) - 1)->caller;
  release(data);
}

class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    const void* caller = __builtin_return_address(0);
    const bool library = library_scope || caller == library_caller.load(std::memory_order_relaxed);
    MemoryAccount& account = library ? library_account() : thread_account();
    void* block = nullptr;
    if (::posix_memalign(&block, alignof(Header), bytes + sizeof(Header)) != 0)
      TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory: a tensor needs ", format_bytes(bytes),
                       ", which this host does not have; the tensors of this rank already need ",
                       format_bytes(thread_account().current()));
    auto* header = new (block) Header{.bytes = static_cast<int64_t>(bytes), .account = &account, .caller = caller};
    account.add(header->bytes);
    if (library_scope) library_scope->allocated(header);
    void* data = header + 1;
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_raw; }
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

MemoryAccount& library_account() {
  static MemoryAccount account;
  return account;
}

LibraryScope::LibraryScope() { library_scope = this; }

LibraryScope::~LibraryScope() {
  library_scope = nullptr;
  for (void* block : blocks_) {
    auto* header = static_cast<Header*>(block);
    header->account->add(-header->bytes);
    header->account = &thread_account();
    header->account->add(header->bytes);
  }
}

AccountScope::AccountScope(MemoryAccount& account) {
  install_counting_allocator();
  previous_ = std::exchange(account_of_thread, &account);
}

AccountScope::~AccountScope() { account_of_thread = previous_; }

void install_counting_allocator() {
  static CountingAllocator allocator;
  c10::SetAllocator(c10::kCPU, &allocator, 255);
  static const bool known = [] {
    torch::NoGradGuard no_grad;
    constexpr int64_t side = 32;
    const auto x = at::ones({side, side}, torch::kBFloat16);
    at::mm(x, x);
    at::mm(x.to(torch::kHalf), x.to(torch::kHalf));
    return true;
  }();
  (void)known;
}

}  // namespace runner
