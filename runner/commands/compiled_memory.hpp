// The memory of the recipe's own strategy in `runner recommend`, if a compiler makes its step: the compiler is asked.
#pragma once
#include <functional>

#include "runner/selection/plan.hpp"

namespace runner {

/// `plan`: of the recommendation. If a compiler makes the step of the recipe's own strategy, compiles that step and sets the memory of the
/// candidate. This takes seconds, unless the compiled program is kept from before. `own` makes the plan of that strategy on the same
/// devices. If the compiler fails, a warning gives the reason, such as the name of an operator, and the memory remains an estimate.
void ask_compiler(Plan& plan, const std::function<Plan()>& own);

}  // namespace runner
