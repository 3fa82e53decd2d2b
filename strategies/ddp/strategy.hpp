// Makes `ddp`.
#pragma once
#include <memory>

#include "strategies/contract/strategy.hpp"

namespace runner {
std::unique_ptr<Strategy> make_ddp(StrategySetup setup);
}
