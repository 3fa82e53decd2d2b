// A copy of this rank's training state in host memory, which a hook takes and restores.
#pragma once
#include <functional>
#include <memory>

#include "runner/lua/training.hpp"
#include "strategies/contract/strategy.hpp"

namespace runner {

struct SnapshotHost {
  Strategy& strategy;
  std::function<int64_t()> step;
  std::function<void(const char* what)> require_allowed;  ///< throws lua::ScriptMistake inside a step
  /// Requests that the snapshot of step `taken` is restored. When all ranks have requested it, the host calls `apply`
  /// and then state_loaded().
  std::function<void(int64_t taken, std::function<void()> apply)> restore;
};

/// Takes a snapshot of the current state. `host` must outlive it.
std::shared_ptr<lua::Snapshot> take_snapshot(const SnapshotHost& host);

}  // namespace runner
