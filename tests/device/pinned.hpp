// Pinned host memory. While a copy that the host has not waited for uses a block, the host's pages of the block are
// protected: against writes while a copy reads it, against any use while a copy writes it.
//
// A bad use is reported, and the program continues. Protection follows what the host has waited for, not when a copy
// runs, so it finds a missing wait under every schedule. The check works per page: a use next to the copied bytes on
// the same page is not reported, and that page stays unprotected until the next copy.
#pragma once
#include <map>
#include <vector>

#include "tests/device/accesses.hpp"
#include "tests/device/address_space.hpp"
#include "tests/device/schedule.hpp"
#include "tests/device/statistics.hpp"

namespace runner::simulated {

class PinnedMemory {
 public:
  PinnedMemory(const AddressSpace& space, Schedule& schedule, Reports& reports)
      : space_(space), next_(space.begin()), schedule_(schedule), reports_(reports) {}

  char* allocate(int64_t asked);
  /// The block is not given out again before the streams that use it have come so far.
  void free(char* address);
  bool contains(const void* address) const { return space_.contains(address); }
  char* real(const char* address) const { return space_.real(address); }

  /// The task that was entered into `stream` last is a copy that makes this use.
  void copy_entered(Stream& stream, const Use& use);
  /// `stream` uses the block; the host may use it, too.
  void record_stream(const char* address, Stream& stream);
  /// The device's host threads have waited for something.
  void host_waited(int device);
  /// The host has touched a protected page: reports what the copies forbid and opens the page. False if the address is
  /// no block's.
  bool handle_fault(char* address);

  const PinnedStatistics& statistics() const { return statistics_; }
  void reset_peak();

 private:
  struct Pinned {
    char* begin = nullptr;
    int64_t bytes = 0, asked = 0;
    bool live = false;
    AccessLog accesses = {};                     ///< of streams among themselves
    std::vector<AccessLog::Access> copies = {};  ///< that the host has not waited for
    std::vector<MomentPtr> used_until = {};
    char* end() const { return begin + bytes; }
  };

  Pinned* find(const char* address);
  void protect(const Pinned& block) const;
  void recycle_what_is_done();

  const AddressSpace& space_;
  char* next_;
  Schedule& schedule_;
  Reports& reports_;
  PinnedStatistics statistics_;
  std::map<char*, Pinned> blocks_;
  std::map<int64_t, std::vector<Pinned*>> unused_;  ///< by size
  std::vector<Pinned*> freed_;                      ///< that streams still use
  std::vector<Pinned*> protected_;                  ///< with copies that the host has not waited for
};

}  // namespace runner::simulated
