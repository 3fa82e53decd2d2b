// The content of a run's row in the ledger: its recipe, plan, code, machine and predictions.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "runner/commands/run.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/selection/plan.hpp"

namespace runner {

NewRun run_row(const std::string& home, const Recipe& recipe, const Plan& plan, const LaunchOptions& options);

/// The annotation "predicted".
nlohmann::json predicted(const Plan& plan);

/// The unit of the training data: "tokens", or "samples" of a model of labels or numbers.
inline const char* unit_of(const Plan& plan) { return plan.model->task ? "samples" : "tokens"; }

}  // namespace runner
