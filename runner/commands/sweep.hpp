// Functions shared by the verbs of `runner sweep`.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/commands/command.hpp"
#include "runner/ledger/sweeps.hpp"
#include "runner/sweep/slots.hpp"
#include "runner/sweep/sweep_file.hpp"

namespace runner {

/// Declares the verbs status, best, importance and stop. The action of the requested verb is stored in `chosen`.
void setup_sweep_reading(CLI::App& app, const std::shared_ptr<Action>& chosen);

/// Declares the verb `trial`, as setup_sweep_reading() does.
void setup_sweep_trial(CLI::App& app, const std::shared_ptr<Action>& chosen);

/// The trials of a sweep that several processes share: all of them. Throws Error(usage) if which trials there are depends on results or
/// on the time.
std::vector<sweep::Trial> shared_trials(const sweep::SweepFile& file);

/// The ledger's record of a sweep that begins with this file. `path`: the file; `name`: empty for that of the file.
NewSweep new_sweep(const sweep::SweepFile& file, const std::string& path, const std::string& name);

/// The slots for trials on this machine. If a launcher has started this process, trials start their ranks themselves. Throws
/// Error(usage) if it has started several.
std::vector<sweep::Slot> trial_slots(const Recipe& recipe, std::optional<int> parallel);

/// Tells the targets of logging.notify that the sweep has ended. `code`: that of its process.
void notify_end(const Recipe& recipe, const SweepRow& row, const std::vector<TrialRow>& trials,
                const sweep::SweepFile& file, ExitCode code);

/// The line "trial 3 finished after 2m: val_loss 1.25 at step 100". `message`: why it failed, or was pruned.
std::string describe_end(const sweep::SweepFile& file, const sweep::TrialState& trial, double seconds,
                         const std::string& message);

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
