// The memory and the threads of a worker whose step XLA compiles.
#pragma once
#include <functional>
#include <map>
#include <string>

#include "runner/selection/plan.hpp"

namespace runner {

/// `plan`: of the recommendation. If a compiler makes the step of the recipe's own strategy, compiles that step and sets the memory of the
/// candidate. This takes seconds, unless the compiled program is kept from before. `own` makes the plan of that strategy on the same
/// devices. If the compiler fails, a warning gives the reason, such as the name of an operator, and the memory remains an estimate.
void ask_compiler(Plan& plan, const std::function<Plan()>& own);

/// The variable with the size of XLA's pool of threads on CPU, which all devices of the process share: PJRT_NPROC. None if XLA does not
/// compile the plan's step for CPUs, or if the user has set it.
std::map<std::string, std::string> xla_threads(const Plan& plan);

}  // namespace runner
