// What a run starts with, recorded so that `runner diff` and `runner rerun` find it: the state of its code, and the files that its
// recipe names.
#pragma once
#include <chrono>

#include "runner/commands/run.hpp"
#include "runner/commands/start_point.hpp"
#include "runner/config/recipe.hpp"
#include "runner/ledger/git_state.hpp"
#include "runner/ledger/ledger.hpp"

namespace runner {

/// Sets parent and parent_kind of a new run: the run that it trains again ("rerun"), the one whose checkpoint it starts from
/// ("continued"), or the one in `home` whose weights model.init_from names ("fine-tuned").
void set_parent(const LaunchOptions& options, const StartPoint& start, const Recipe& recipe, const std::string& home,
                NewRun& run);

class Provenance {
 public:
  /// Both must outlive this object.
  Provenance(Ledger& ledger, CodeReader& code) : ledger_(ledger), code_(code) {}
  /// Sets `git` if git has answered within some milliseconds, and the annotations "recipe_files" and "scripts" ({path: digest of a text
  /// that the ledger keeps}). The texts are committed with the run's row.
  void describe(const Recipe& recipe, NewRun& run);
  /// The same for a run that is trained again from the ledger: recipe, places of its values, and files are those of `before`.
  static void take_over(const nlohmann::json& before, NewRun& run);
  /// Records the state of the code as soon as it is known: in the ledger, and its patch as RUN_DIR/code.patch if `run_dir` is not
  /// empty. Does nothing the next time.
  void record(const std::string& run, const std::string& run_dir, std::chrono::milliseconds patience = {});

 private:
  Ledger& ledger_;
  CodeReader& code_;
  bool recorded_ = false;
};

}  // namespace runner
