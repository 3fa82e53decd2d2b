#include "tests/device/pinned.hpp"

#include <c10/util/Exception.h>

#include <bit>
#include <cstring>

namespace runner::simulated {

namespace {

int64_t power_of_two(int64_t bytes) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))); }

}  // namespace

char* PinnedMemory::allocate(int64_t asked) {
  recycle_what_is_done();
  int64_t rounded = power_of_two(asked), bytes = std::max(rounded, static_cast<int64_t>(page_bytes));
  auto& unused = unused_[rounded];
  Pinned* block = nullptr;
  if (unused.empty()) {
    TORCH_CHECK(bytes <= space_.end() - next_, "no addresses for pinned memory are left");
    block = &(blocks_[next_] = Pinned{.begin = next_, .bytes = bytes});
    next_ += bytes;
    statistics_.reserved += rounded;
  } else {
    block = unused.back();
    unused.pop_back();
  }
  std::memset(space_.real(block->begin), 0xff, static_cast<size_t>(asked));  // NaN shows reads before writes
  block->live = true;
  block->asked = asked;
  protect(*block);
  statistics_.add(asked, rounded);
  return block->begin;
}

void PinnedMemory::free(char* address) {
  Pinned& block = blocks_.at(address);
  block.live = false;
  statistics_.remove(block.asked, power_of_two(block.asked));
  protect(block);
  freed_.push_back(&block);
  recycle_what_is_done();
}

void PinnedMemory::recycle_what_is_done() {
  std::erase_if(freed_, [&](Pinned* block) {
    std::erase_if(block->used_until, [](const MomentPtr& moment) { return moment->passed; });
    if (!block->used_until.empty()) return false;
    block->accesses.clear();
    block->copies.clear();
    std::erase(protected_, block);
    unused_[power_of_two(block->asked)].push_back(block);
    return true;
  });
}

void PinnedMemory::copy_entered(Stream& stream, const Use& use) {
  Pinned* block = find(use.begin);
  if (!block || use.begin == use.end) return;
  block->accesses.add(stream, use, reports_);
  block->used_until.push_back(schedule_.record(stream));
  if (block->copies.empty()) protected_.push_back(block);
  block->copies.push_back({use, &stream, stream.clock.of(stream.index)});
  protect(*block);
}

void PinnedMemory::record_stream(const char* address, Stream& stream) {
  if (Pinned* block = find(address)) block->used_until.push_back(schedule_.record(stream));
}

void PinnedMemory::host_waited(int device) {
  const Clock& known = schedule_.host_clock(device);
  std::erase_if(protected_, [&](Pinned* block) {
    size_t before = block->copies.size();
    std::erase_if(block->copies, [&](const AccessLog::Access& copy) {
      return copy.stream->device == device && known.of(copy.stream->index) >= copy.task;
    });
    if (block->copies.size() != before) protect(*block);
    return block->copies.empty();
  });
}

void PinnedMemory::protect(const Pinned& block) const {
  using Access = AddressSpace::Access;
  Access access = block.live ? Access::all : Access::none;
  for (const auto& copy : block.copies) {
    if (copy.use.writes) access = Access::none;
    if (access == Access::all) access = Access::read;
  }
  space_.allow(block.begin, static_cast<size_t>(block.bytes), access);
}

bool PinnedMemory::handle_fault(char* address) {
  Pinned* block = find(address);
  if (!block) return false;
  if (!block->live) reports_.add("pinned memory: the host uses a block that has been freed");
  for (const auto& copy : block->copies) {
    if (address < copy.use.begin || address >= copy.use.end) continue;
    reports_.add(std::string("pinned memory: the host ") + (copy.use.writes ? "uses" : "writes") + " what `" +
                 copy.use.what + "` on " + copy.stream->name() + " has yet to " + (copy.use.writes ? "write" : "read"));
  }
  auto offset = static_cast<size_t>(address - block->begin) / page_bytes * page_bytes;
  space_.allow(block->begin + offset, page_bytes, AddressSpace::Access::all);
  return true;
}

PinnedMemory::Pinned* PinnedMemory::find(const char* address) { return find_block(blocks_, address); }

void PinnedMemory::reset_peak() { statistics_.reset_peak(); }

}  // namespace runner::simulated
