// The machine that carries a ShardPlan out.
#pragma once
#include <memory>

#include "strategies/contract/strategy.hpp"
#include "strategies/sharded/plan.hpp"

namespace runner {
std::unique_ptr<Strategy> make_sharded(StrategySetup setup, ShardPlan plan);
}
