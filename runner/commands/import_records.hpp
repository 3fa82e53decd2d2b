// `runner import` of runs: from a bundle, or from what another program has recorded.
#pragma once
#include <string>
#include <vector>

#include "runner/base/error.hpp"

namespace runner {

/// The sources that `runner import` reads: bundle, mlflow, ..., deepspeed.
std::vector<std::string> import_sources();

/// `kind`: bundle, mlflow, wandb, tensorboard or csv. `replace`: of a bundle, where there is a conflict. `json`: prints what became of
/// each run as JSON instead of the ids.
ExitCode import_records(const std::string& kind, const std::string& path, bool replace, bool json);

}  // namespace runner
