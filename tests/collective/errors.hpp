// Error texts of ranks that are threads.
#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "tests/support/thread_world.hpp"

namespace runner::testing {

using Texts = std::vector<std::string>;

/// The error of LibTorch that each rank has thrown; "" if the rank had none.
inline Texts errors(int ranks, const std::function<void(World&)>& body,
                    std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  Texts texts(static_cast<size_t>(ranks));
  run_ranks(
      ranks,
      [&](World& world) {
        try {
          body(world);
        } catch (const c10::Error& error) {
          texts[static_cast<size_t>(world.rank)] = error.what_without_backtrace();
        }
      },
      timeout);
  return texts;
}

}  // namespace runner::testing
