// XLA's account of the memory of a step, before anything is trained: its programs are compiled, and not run.
#pragma once
#include <optional>
#include <string>

#include "strategies/contract/entry.hpp"
#include "strategies/contract/module.hpp"
#include "strategies/contract/optimizer.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner {

/// The memory of the program of a step that needs most.
struct StepAccount {
  std::string program;    ///< what it does: "step", "micro-batch"
  int64_t bytes = 0;      ///< on each device: all arrays, and what the program uses while it runs
  int64_t temporary = 0;  ///< bytes of the latter
};

/// `plan.compiled` is set. `model` may have no values. A training with the same plan finds the programs in plan.compiled->store. Throws
/// Error(environment) if the plug-in cannot be used, and Error(run_failed) with the name of an operator that cannot be compiled.
StepAccount account_of_step(Model& model, const Job& job, const ParallelPlan& plan, const OptimizerConfig& optimizer,
                            std::optional<double> clip_norm, std::optional<double> clip_value);

}  // namespace runner
