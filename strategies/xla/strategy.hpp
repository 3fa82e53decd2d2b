// The engine that XLA compiles: the strategies xla, single_xla, xla_fsdp and their aliases.
#pragma once
#include <memory>

#include "strategies/contract/strategy.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner {

/// `plan.compiled` is set. Throws Error(environment) if this program was built without a client of PJRT plug-ins.
std::unique_ptr<Strategy> make_compiled(StrategySetup setup, ParallelPlan plan);

}  // namespace runner
