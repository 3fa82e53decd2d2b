// The reducer of `hivemind`: this run is one peer of a swarm.
#pragma once
#include <memory>

#include "strategies/contract/strategy.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner {

/// `setup.note` may be empty. Joins the swarm in prepare(), which throws what Swarm does.
std::shared_ptr<Reducer> make_hivemind(const ReducerPlan& plan, const StrategySetup& setup);

}  // namespace runner
