// The end of a process that has loaded LibTorch.
#pragma once
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace runner {

/// Lets this process end without the destructors of LibTorch's static objects, which take 0.2 s. Called at the beginning of main(): what is
/// registered or constructed later is still ended. Tools that were loaded into the process (profilers, sanitizers) write their results at a
/// complete end, so they keep it.
inline void end_quickly() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  for (const char* tool : {"LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"})
    if (std::getenv(tool) != nullptr) return;
  ::on_exit(
      [](int status, void*) {
        std::fflush(nullptr);
        ::_exit(status);
      },
      nullptr);
#endif
}

}  // namespace runner
