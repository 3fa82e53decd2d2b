// A copy of a strategy's training state in host memory, of this rank's part, that a hook takes and goes back to.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "runner/lua/training.hpp"
#include "strategies/contract/strategy.hpp"

namespace runner {

struct SnapshotHost {
  Strategy& strategy;
  std::function<int64_t()> step;
  std::function<void(const char* what)> require_allowed;  ///< throws lua::ScriptMistake where a step goes on
  /// The snapshot of step `taken` is to be gone back to: the host calls `apply`, and then state_loaded(), once it knows
  /// that every rank wants that.
  std::function<void(int64_t taken, std::function<void()> apply)> restore;
};

/// One of the state as it is now. `host` outlives it.
std::shared_ptr<lua::Snapshot> take_snapshot(const SnapshotHost& host);

}  // namespace runner
