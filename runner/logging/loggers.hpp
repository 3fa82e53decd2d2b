// The loggers that a recipe names: metrics for other programs, in addition to the ledger.
#pragma once
#include <memory>
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/logging/run_listener.hpp"

namespace runner {

/// Throws Error for what is missing on this machine, before a run begins: libcurl (environment), a server in MLFLOW_TRACKING_URI (usage).
void check_loggers(const Recipe& recipe);

/// The loggers of the run with this id and folder. `ledger` must outlive them; it gets what a logger has to record about the run. A
/// trial of a sweep notifies only the targets that want trials.
std::vector<std::shared_ptr<RunListener>> make_loggers(const Recipe& recipe, const fs::path& run_dir, Ledger& ledger,
                                                       const std::string& run, bool trial);

}  // namespace runner
