// What /proc/PID/stat says about a process.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace runner {

/// The content of a file of /proc, which has no size. Empty if it is missing or cannot be read; a process may end meanwhile.
std::string read_proc(const std::string& path);

struct ProcessStat {
  char state = 0;  ///< 'R', 'S', ..., as in proc(5)
  pid_t parent = 0;
  int64_t start_time = 0;  ///< clock ticks since boot
  /// Zombies have ended.
  bool has_ended() const { return state == 'Z' || state == 'X'; }
};

/// Empty if there is no such process, or if it is hidden from this user (hidepid).
std::optional<ProcessStat> read_process_stat(int64_t pid);

}  // namespace runner
