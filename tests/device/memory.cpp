#include "tests/device/memory.hpp"

#include <c10/util/Exception.h>

#include <cstring>

namespace runner::simulated {

char* DeviceMemory::allocate(Lock& lock, int64_t asked, Stream& stream) {
  constexpr int64_t unit = 512;  // as the caching allocator rounds
  int64_t bytes = (asked + unit - 1) / unit * unit;
  recycle_what_is_done();
  if (statistics_.rounded + waiting_bytes() > limit_ - bytes) {
    for (Block* block : std::vector(waiting_))
      for (const auto& moment : std::vector(block->used_until)) schedule_.wait_on_host(lock, moment);
    recycle_what_is_done();
  }
  TORCH_CHECK_WITH(OutOfMemoryError, statistics_.rounded + waiting_bytes() <= limit_ - bytes, "simulated device ",
                   device_, " is out of memory: ", bytes, " bytes were asked for, ", statistics_.rounded, " of ",
                   limit_, " are in use");
  recycle_freed(stream);
  auto& unused = unused_[{&stream, bytes}];
  Block* block = unused.empty() ? &new_block(bytes, stream) : unused.back();
  if (!unused.empty()) unused.pop_back();
  block->live = true;
  block->asked = asked;
  statistics_.add(asked, bytes);
  ++statistics_.allocations;
  return block->begin;
}

Block& DeviceMemory::new_block(int64_t bytes, Stream& stream) {
  TORCH_CHECK(bytes <= end_ - next_, "simulated device ", device_, " has no addresses left");
  Block& block = blocks_[next_] = Block{.begin = next_, .bytes = bytes, .stream = &stream};
  next_ += bytes;
  poison(block, "allocate");
  return block;
}

void DeviceMemory::poison(Block& block, const char* what) {
  char* real = space_.real(block.begin);
  auto bytes = static_cast<size_t>(block.bytes);
  constexpr int all_ones = 0xff;  // NaN in every floating-point type
  schedule_.enter(*block.stream, {.kernel = [real, bytes] { std::memset(real, all_ones, bytes); }});
  block.accesses.add(*block.stream, {block.begin, block.end(), /*writes=*/true, what}, reports_);
}

void DeviceMemory::free(char* address) {
  Block& block = blocks_.at(address);
  block.live = false;
  statistics_.remove(block.asked, block.bytes);
  for (Stream* stream : block.used_on)
    if (stream != block.stream) block.used_until.push_back(schedule_.record(*stream));
  block.used_on.clear();
  if (block.used_until.empty()) return freed_[block.stream].push_back(&block);
  ++statistics_.deferred_frees;
  waiting_.push_back(&block);
  recycle_what_is_done();
  statistics_.waiting_peak = std::max(statistics_.waiting_peak, waiting_bytes());
}

void DeviceMemory::recycle_freed(Stream& stream) {
  for (Block* block : std::exchange(freed_[&stream], {})) {
    poison(*block, "free");
    unused_[{block->stream, block->bytes}].push_back(block);
  }
}

/// The allocator has seen that the other streams are done. That orders this block's next uses after theirs, and no
/// other block's.
void DeviceMemory::recycle_what_is_done() {
  std::erase_if(waiting_, [&](Block* block) {
    for (const auto& moment : block->used_until)
      if (!moment->passed) return false;
    for (const auto& moment : block->used_until) block->accesses.forget(device_, moment->clock);
    block->used_until.clear();
    freed_[block->stream].push_back(block);
    return true;
  });
}

int64_t DeviceMemory::waiting_bytes() const {
  int64_t bytes = 0;
  for (const Block* block : waiting_) bytes += block->bytes;
  return bytes;
}

void DeviceMemory::record_stream(const char* address, Stream& stream) {
  if (Block* block = find(address)) block->used_on.insert(&stream);
}

Block* DeviceMemory::find(const char* address) { return find_block(blocks_, address); }

void DeviceMemory::reset_peak() {
  statistics_.reset_peak();
  statistics_.waiting_peak = 0;
}

}  // namespace runner::simulated
