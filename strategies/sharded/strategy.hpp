// The machine that carries a ShardPlan out.
#pragma once
#include <functional>
#include <memory>

#include "strategies/contract/strategy.hpp"
#include "strategies/sharded/plan.hpp"

namespace runner {

/// Told what happens to units, by index in the plan; each may be empty. What one throws is thrown where it happens.
struct ShardEvents {
  /// In the thread of a background update (background_update.hpp): before a unit's update, and after it and its copy.
  std::function<void(size_t unit)> update_begins, update_ended;
  /// In the rank's thread: the forward of a block of the model begins, with all of its parameters there.
  std::function<void(size_t block)> forward_begins;
};

std::unique_ptr<Strategy> make_sharded(StrategySetup setup, ShardPlan plan, ShardEvents events = {});

}  // namespace runner
