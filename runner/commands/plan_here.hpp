// The plan of a recipe on the devices of this machine.
#pragma once
#include <string>

#include "runner/selection/plan.hpp"

namespace runner {

/// Resolves every `auto` for these devices. `several_supervisors`: as in Place. Throws as make_plan() does.
Plan plan_on(const Recipe& recipe, const Topology& topology, bool several_supervisors);
/// "gpt 4.8 M parameters, fsdp on 2 CPU ranks, ...": the plan in one line.
std::string describe(const Plan& plan);

}  // namespace runner
