// The strategy that executes the program of a plan.
#pragma once
#include <functional>
#include <memory>

#include "strategies/contract/strategy.hpp"
#include "strategies/program/program.hpp"

namespace runner {

/// Callbacks; each may be empty. An exception that a callback throws is handled like one of the code that called it.
struct ShardEvents {
  /// Called in the thread of a background update (background_update.hpp) before the update of a unit (index in the plan), and
  /// after its copy to the device has been queued.
  std::function<void(size_t unit)> update_begins, update_ended;
  /// Called in the rank's thread before the forward of a block, when all of its parameters are available.
  std::function<void(size_t block)> forward_begins;
  /// Called with the program of a step before it is executed for the first time. It may change the program.
  std::function<void(Program& program)> programmed;
};

std::unique_ptr<Strategy> make_executor(StrategySetup setup, ParallelPlan plan, ShardEvents events = {});

}  // namespace runner
