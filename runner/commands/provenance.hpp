// The record of a run's start, which `runner diff` and `runner rerun` read: its row, the state of its code, and the files that its recipe
// names.
#pragma once
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/base/secrets.hpp"
#include "runner/commands/run.hpp"
#include "runner/commands/start_point.hpp"
#include "runner/config/recipe.hpp"
#include "runner/ledger/git_state.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/logging/run_listener.hpp"
#include "runner/selection/plan.hpp"

namespace runner {

/// The words of this process's command.
std::vector<std::string> own_command_line();

/// The content of a run's row in the ledger: its recipe, plan and machine.
NewRun run_row(const std::string& home, const Recipe& recipe, const Plan& plan, const LaunchOptions& options);

/// The annotation "predicted".
nlohmann::json predicted(const Plan& plan);

/// The unit of the training data: "tokens", or "samples" of a model of labels or numbers.
inline const char* unit_of(const Plan& plan) { return plan.model->task ? "samples" : "tokens"; }

/// {absolute path: hash of the content} of the recipe's file and of the files that it extends or names in [strategy].
nlohmann::json recipe_files(const Recipe& recipe);

/// The paths in `before`, a value of recipe_files(), whose content has changed since then. Files that no longer exist
/// are not among them. Paths below the working directory are relative.
std::vector<std::string> changed_recipe_files(const nlohmann::json& before);

/// Sets parent and parent_kind of a new run: the run that it trains again ("rerun"), the one whose checkpoint it starts from
/// ("continued"), or the one in `home` whose weights model.init_from names ("fine-tuned").
void set_parent(const LaunchOptions& options, const StartPoint& start, const Recipe& recipe, const std::string& home,
                NewRun& run);

/// Sets recipe, places of its values, and files to those of `before`, the run that is trained again from the ledger.
void take_over(const nlohmann::json& before, NewRun& run);

class Provenance final : public RunListener {
 public:
  /// `ledger` and `code` must outlive this object.
  Provenance(Ledger& ledger, CodeReader& code) : ledger_(ledger), code_(code) {}
  /// Sets `git` if git has answered within some milliseconds, and the annotations "recipe_files" and "scripts" ({path: digest}). The
  /// ledger keeps the patch, under the digest git.patch.kept, without secret values, and the scripts that contain none. They are
  /// committed with the run's row.
  void describe(const Recipe& recipe, NewRun& run);

  std::string title() const override { return "the state of the code"; }
  void begin(const AttemptStart& attempt) override;
  /// Records the digests of the data, which the worker has read.
  void event(const std::string& kind, const nlohmann::json& fields) override;
  /// Records the state of the code as soon as it is known, in the ledger and as RUN_DIR/code.patch.
  void tick() override { record({}); }

 private:
  void record(std::chrono::milliseconds patience);
  /// Keeps the patch. Returns CodeState::git with the digest of what was kept.
  nlohmann::json keep(const CodeState& code);

  Ledger& ledger_;
  CodeReader& code_;
  Secrets secrets_;
  std::string run_;
  fs::path folder_;
  bool recorded_ = false;
};

}  // namespace runner
