#include "runner/base/process_memory.hpp"

#include <malloc.h>

#include <cstdio>

namespace runner {

int64_t peak_resident_bytes() {
  FILE* file = std::fopen("/proc/self/status", "re");
  if (!file) return 0;
  char line[256];
  long kilobytes = 0;
  while (std::fgets(line, sizeof line, file))
    if (std::sscanf(line, "VmHWM: %ld", &kilobytes) == 1) break;
  std::fclose(file);
  return int64_t{kilobytes} * 1024;
}

void tune_malloc() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 512 << 20);
  ::mallopt(M_TOP_PAD, 16 << 20);
}

void return_large_blocks() { ::mallopt(M_MMAP_THRESHOLD, 4 << 20); }

}  // namespace runner
