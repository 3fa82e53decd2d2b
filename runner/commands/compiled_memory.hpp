// The memory of the recipe's own strategy in `runner recommend`, if a compiler makes its step: the compiler is asked.
#pragma once
#include "runner/selection/plan.hpp"

namespace runner {

/// `plan`: of the recommendation. `own`: the plan of the recipe's strategy on the same devices. Compiles the step of `own`, which takes
/// seconds unless the compiled program is kept from before, and sets the memory of the candidate that is equal to it. If an operator cannot
/// be compiled, the candidate is refused with the operator's name. Does nothing if no compiler makes the step.
void ask_compiler(Plan& plan, const Plan& own);

/// Whether a compiler makes the steps of a candidate of the plan, which is the recipe's own.
bool has_compiled_candidate(const Plan& plan);

}  // namespace runner
