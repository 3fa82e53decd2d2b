// The race detector: which tasks have used which bytes of a block, and whether a new use is ordered after them.
//
// A use is checked when it is entered, not when it runs. So what is found does not depend on the schedule, and the call
// that made the mistake is still on the stack.
#pragma once
#include <string>
#include <vector>

#include "tests/device/reports.hpp"
#include "tests/device/schedule.hpp"

namespace runner::simulated {

/// Bytes that a task reads or writes.
struct Use {
  const char *begin = nullptr, *end = nullptr;
  bool writes = false;
  const char* what = "";  ///< the operator; a string that stays
};

class AccessLog {
 public:
  /// The task that was entered into `stream` last makes this use. Reports earlier uses that may run at the same time.
  void add(const Stream& stream, Use use, Reports& reports);
  /// Forgets the uses that come before `clock`: they have ended.
  void forget(int device, const Clock& clock);
  void clear() { accesses_.clear(); }

  struct Access {
    Use use;
    const Stream* stream;
    uint64_t task;  ///< its number in the stream
  };
  const std::vector<Access>& list() const { return accesses_; }

 private:
  std::vector<Access> accesses_;
};

}  // namespace runner::simulated
