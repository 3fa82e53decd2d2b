// Ranks as threads of one process, for tests. They use the shared-memory backend over process memory, so that tests run
// the same code as processes.
#pragma once
#include <functional>

#include "strategies/collective/world.hpp"

namespace runner::testing {

/// Runs `body` once for each rank, on a new thread each, and returns when all are done. The first exception is
/// rethrown. The other ranks are woken with an error.
void run_ranks(int world_size, const std::function<void(World&)>& body,
               std::chrono::milliseconds timeout = std::chrono::seconds(60));

}  // namespace runner::testing
