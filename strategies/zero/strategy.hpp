// Makes `zero`.
#pragma once
#include <memory>

#include "strategies/contract/strategy.hpp"

namespace runner {
std::unique_ptr<Strategy> make_zero(StrategySetup setup);
}
