// Which checkpoint of a run the verbs that read a trained model use: the newest good one, the best one, or one that the user names.
#pragma once
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runner/checkpoint/checkpoint.hpp"

namespace runner {

class Ledger;

/// --step, --checkpoint and --best.
struct CheckpointChoice {
  std::string checkpoint = {};
  std::optional<int64_t> step = {};
  bool best = false;

  /// The option that was given; empty: none, which means the newest good checkpoint.
  std::string option() const { return step ? "--step" : !checkpoint.empty() ? "--checkpoint" : best ? "--best" : ""; }
};

/// At most one of the three may be given.
void add_checkpoint_options(CLI::App& app, CheckpointChoice& choice);

/// The run that `named` means. If it is a name, the newest run of this name has no checkpoint, and `choice` names none: the newest run of
/// this name that has one.
std::string run_with_checkpoint(const Ledger& ledger, const std::string& named, const CheckpointChoice& choice);

/// The folder of the checkpoint. Damaged checkpoints are skipped with a warning, and the next one is used, as a resume does. Throws
/// Error(usage) if the run has no such checkpoint, and for --best if the run never measured checkpoint.monitor. `ledger`: where the
/// run is recorded; null if it is known by its folder only.
fs::path chosen_checkpoint(const CheckpointChoice& choice, const std::string& run, const fs::path& run_dir,
                           const Ledger* ledger);

/// The best checkpoint of a run that `runner show` prints: {metric, value, step, path}, and the same names with `recorded_` if the run
/// measured a better value at a step without a sound checkpoint. Null if no checkpoint has a value. Does not compare hashes.
nlohmann::json best_checkpoint_of(const Ledger& ledger, const nlohmann::json& run);

}  // namespace runner
