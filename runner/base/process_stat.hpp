// Facts about processes from /proc, and limits and memory of this one.
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

// The memory of this process: its peak, and what glibc does with freed blocks.

/// VmHWM of this process: the peak of its resident memory.
int64_t peak_resident_bytes();

/// Makes glibc keep freed blocks instead of returning them to the system. A training step frees and allocates the same
/// sizes again, and each return would cost page faults. Call this before threads start.
void tune_malloc();
/// Makes glibc return freed blocks of 4 MiB and more to the system. This is slower, but avoids fragmentation. It is for
/// runs that offload because memory is short.
void return_large_blocks();

/// If the limit is below `needed`, raises it to that or to 65,536, whichever is higher, as far as this user may (the hard limit). Throws
/// Error(environment) that names `purpose`, both numbers and a remedy if that does not suffice. `purpose`: "rank 0 of 1,024 over Gloo".
void raise_descriptor_limit(int64_t needed, const std::string& purpose);

}  // namespace runner
