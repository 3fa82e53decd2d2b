// The plan of a recipe on this machine: its devices, its disk, and the memory that XLA needs for a step.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "runner/base/files.hpp"
#include "runner/selection/plan.hpp"

namespace runner {

/// Resolves every `auto` for these devices. `several_supervisors`: as in Place. Throws as make_plan() does.
Plan plan_on(const Recipe& recipe, const Topology& topology, bool several_supervisors);
/// "gpt 4.8 M parameters, fsdp on 2 CPU ranks, ...": the plan in one line.
std::string describe(const Plan& plan);

/// Compares the size of the checkpoints that a run keeps with `free_bytes` on its disk. `existing`: number of checkpoints
/// already written. Throws Error(environment) if there is no space for another one. Returns a note if space is short, or "".
std::string disk_space_note(const Plan& plan, int64_t free_bytes, int64_t existing);
/// The free bytes on the filesystem of `folder`, which may not exist yet; empty if unknown.
std::optional<int64_t> free_bytes(fs::path folder);

/// `plan`: of the recommendation. If a compiler makes the step of the recipe's own strategy, compiles that step and sets the memory of the
/// candidate. This takes seconds, unless the compiled program is kept from before. `own` makes the plan of that strategy on the same
/// devices. If the compiler fails, a warning gives the reason, such as the name of an operator, and the memory remains an estimate.
void ask_compiler(Plan& plan, const std::function<Plan()>& own);

/// The variable with the size of XLA's pool of threads on CPU, which all devices of the process share: PJRT_NPROC. None if XLA does not
/// compile the plan's step for CPUs, or if the user has set it.
std::map<std::string, std::string> xla_threads(const Plan& plan);

}  // namespace runner
