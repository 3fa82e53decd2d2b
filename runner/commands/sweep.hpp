// What the verbs below `runner sweep` share.
#pragma once
#include <memory>
#include <string>

#include "runner/commands/command.hpp"
#include "runner/ledger/sweeps.hpp"
#include "runner/sweep/sweep_file.hpp"

namespace runner {

/// Declares status, best, importance and stop; which one was asked for is put into `chosen`.
void setup_sweep_reading(CLI::App& app, const std::shared_ptr<Action>& chosen);

/// The sweep's file as it was when the sweep began, with its snapshot of the recipe.
sweep::SweepFile sweep_file_of(const SweepRow& row);

/// {id, name, status, ..., counts, best}, as `--json` shows a sweep.
nlohmann::json sweep_json(const SweepRow& row, const std::vector<TrialRow>& trials);

/// The best of the finished trials; nullptr if there is none.
const TrialRow* best_trial(const SweepRow& row, const std::vector<TrialRow>& trials);

/// "optimizer.lr = 0.0003, model.dim = 64".
std::string describe_parameters(const nlohmann::json& parameters);

}  // namespace runner
