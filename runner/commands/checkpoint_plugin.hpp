// plugins.checkpoint_io: opens the library or the Lua file, and follows a run with it.
#pragma once
#include <memory>
#include <set>

#include "runner/checkpoint/background_store.hpp"
#include "runner/commands/run_record.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/launch/first_cause.hpp"
#include "runner/launch/stop_signals.hpp"

namespace runner {

/// Appends the mistakes that opening the plug-in shows. Returns the options that it asks for.
std::set<std::string> check_checkpoint_io(const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

/// The recipe's store; null if it has none, or if run.fast_dev_run keeps nothing. Throws Error(usage) or RecipeError with the mistakes.
std::shared_ptr<CheckpointStore> open_checkpoint_store(const Recipe& recipe);

/// Stores the checkpoints of a run while it trains. Without a store, all functions do nothing.
class CheckpointFollower {
 public:
  CheckpointFollower(std::shared_ptr<CheckpointStore> store, const Recipe& recipe, RunRecord& record);
  CheckpointStore* store() const { return store_.get(); }
  /// Stores what an earlier process of the run has published but not stored, and what the folder got since then.
  void begin();
  void on_event(const nlohmann::json& event);
  /// Passes on messages. Throws Error(environment) if storing has failed and checkpoint.on_error is "stop".
  void on_tick();
  /// Calls `answer` at once, or, if checkpoint.async is false, when the checkpoints that were published until now are stored.
  void on_settle(std::function<void()> answer);
  /// Waits until all checkpoints are stored. A stop signal ends the wait; if the run was stopped, it ends after train.grace_time. Returns
  /// the outcome of the run, which has failed if the newest checkpoint could not be stored.
  Outcome finish(Outcome outcome, StopSignals& signals);

 private:
  void store_missing();
  void pass_on_notes();
  bool wait_until_stored(StopSignals& signals, bool stopped);

  std::shared_ptr<CheckpointStore> store_;
  const Recipe& recipe_;
  RunRecord& record_;
  Attempts attempts_;
  std::unique_ptr<BackgroundStore> background_;
};

}  // namespace runner
