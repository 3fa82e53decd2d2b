// Functions shared by the verbs of `runner sweep`.
#pragma once
#include <memory>
#include <string>

#include "runner/commands/command.hpp"
#include "runner/ledger/sweeps.hpp"
#include "runner/sweep/sweep_file.hpp"

namespace runner {

/// Declares the verbs status, best, importance and stop. The action of the requested verb is stored in `chosen`.
void setup_sweep_reading(CLI::App& app, const std::shared_ptr<Action>& chosen);

/// The sweep file as stored in the ledger, with the sweep's copy of the recipe.
sweep::SweepFile sweep_file_of(const SweepRow& row);

/// A sweep as JSON: {id, name, status, ..., counts, best}.
nlohmann::json sweep_json(const SweepRow& row, const std::vector<TrialRow>& trials);

/// The best of the finished trials; nullptr if there is none.
const TrialRow* best_trial(const SweepRow& row, const std::vector<TrialRow>& trials);

/// The command that repeats a trial with the same result: the sweep's copy of the recipe, the trial's parameters, its threads and
/// devices. `run`: the object of Ledger::show() for the trial's run.
std::string command_of_trial(const TrialRow& trial, const nlohmann::json& run);

/// "optimizer.lr = 0.0003, model.dim = 64".
std::string describe_parameters(const nlohmann::json& parameters);

}  // namespace runner
