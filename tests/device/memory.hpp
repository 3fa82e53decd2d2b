// The memory of one simulated device, given out in blocks as LibTorch's caching allocator does.
//
// A block belongs to the stream that was current when it was allocated. After it was freed, the stream's next
// allocation may get it. So that allocation first enters a task into the stream that overwrites all freed blocks of the
// stream with NaN, and checks that this is ordered after the earlier uses. Blocks that other streams use
// (record_stream) wait until those have come so far.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "tests/device/accesses.hpp"
#include "tests/device/address_space.hpp"
#include "tests/device/schedule.hpp"
#include "tests/device/statistics.hpp"

namespace runner::simulated {

struct Block {
  char* begin = nullptr;
  int64_t bytes = 0, asked = 0;
  Stream* stream = nullptr;
  bool live = false;
  std::set<Stream*> used_on = {};          ///< by record_stream
  std::vector<MomentPtr> used_until = {};  ///< after it was freed: when those streams are done with it
  AccessLog accesses = {};

  char* end() const { return begin + bytes; }
};

class DeviceMemory {
 public:
  static constexpr int64_t no_limit = std::numeric_limits<int64_t>::max();
  static constexpr int64_t address_bytes = int64_t{1} << 34;

  /// The device has the part of `space` that begins at `begin`.
  DeviceMemory(int device, const AddressSpace& space, char* begin, Schedule& schedule, Reports& reports)
      : device_(device),
        space_(space),
        next_(begin),
        end_(begin + address_bytes),
        schedule_(schedule),
        reports_(reports) {}

  /// Throws c10::OutOfMemoryError at the limit, after it has waited for the blocks that other streams use.
  char* allocate(Lock& lock, int64_t asked, Stream& stream);
  void free(char* address);
  /// The block is not given out again before `stream` has done what it has entered when the block is freed.
  void record_stream(const char* address, Stream& stream);
  /// The block that contains the address, live or not; null if there is none.
  Block* find(const char* address);

  const MemoryStatistics& statistics() const { return statistics_; }
  void reset_peak();
  void set_limit(int64_t bytes) { limit_ = bytes; }

 private:
  Block& new_block(int64_t bytes, Stream& stream);
  void poison(Block& block, const char* what);
  void recycle_what_is_done();
  void recycle_freed(Stream& stream);
  int64_t waiting_bytes() const;

  int device_;
  const AddressSpace& space_;
  char *next_, *end_;  ///< addresses that no block has
  Schedule& schedule_;
  Reports& reports_;
  MemoryStatistics statistics_;
  int64_t limit_ = no_limit;
  std::map<char*, Block> blocks_;
  std::map<Stream*, std::vector<Block*>> freed_;                       ///< since the stream's last allocation
  std::map<std::pair<Stream*, int64_t>, std::vector<Block*>> unused_;  ///< by stream and size
  std::vector<Block*> waiting_;                                        ///< freed, and used by other streams
};

}  // namespace runner::simulated
