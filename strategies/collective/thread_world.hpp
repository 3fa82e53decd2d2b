// Ranks as threads of one process, for tests: the shared-memory backend over process memory, so that what is tested is
// what runs.
#pragma once
#include <functional>

#include "strategies/collective/world.hpp"

namespace runner {

/// Runs `body` once a rank, each on a thread of its own, and returns when all are done. The first exception is
/// rethrown; the other ranks are woken with an error.
void run_ranks(int world_size, const std::function<void(World&)>& body,
               std::chrono::milliseconds timeout = std::chrono::seconds(60));

}  // namespace runner
