// Makes `single`.
#pragma once
#include <memory>

#include "strategies/contract/strategy.hpp"

namespace runner {
std::unique_ptr<Strategy> make_single(StrategySetup setup);
}
