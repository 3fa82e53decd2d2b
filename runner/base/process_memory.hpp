// The memory of this process: its peak, and what glibc does with freed blocks.
#pragma once
#include <cstdint>

namespace runner {

/// VmHWM of this process: the peak of its resident memory.
int64_t peak_resident_bytes();

/// Makes glibc keep freed blocks instead of returning them to the system. A training step frees and allocates the same
/// sizes again, and each return would cost page faults. Call this before threads start.
void tune_malloc();
/// Makes glibc return freed blocks of 4 MiB and more to the system. This is slower, but avoids fragmentation. It is for
/// runs that offload because memory is short.
void return_large_blocks();

}  // namespace runner
