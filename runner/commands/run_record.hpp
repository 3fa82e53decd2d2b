// Records a run: translates the events of its workers to points, events and artifacts for the listeners, from the start of the command
// to the result.
#pragma once
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "runner/commands/provenance.hpp"
#include "runner/commands/run.hpp"
#include "runner/commands/run_result.hpp"
#include "runner/commands/start_point.hpp"
#include "runner/launch/stop_signals.hpp"
#include "runner/launch/supervisor.hpp"
#include "runner/logging/ledger_listener.hpp"
#include "runner/logging/run_log.hpp"
#include "runner/selection/plan.hpp"

namespace runner {

class RunProgress;

class RunRecord {
 public:
  /// Commits the run's row, or reopens it on resume. `code` and `signals` must outlive the record: a signal ends the wait for servers and
  /// other programs at the end. `shown`: collects what is printed. `started`: steady_seconds() at the start of the command.
  RunRecord(const std::string& home, const Recipe& recipe, const Plan& plan, const LaunchOptions& options,
            const StartPoint& start, CodeReader& code, StopSignals& signals, std::shared_ptr<RunLog> shown,
            double started);

  const std::string& run() const { return ledger_.run(); }
  const std::string& run_dir() const { return run_dir_; }
  /// See Ledger::brief_reads().
  [[nodiscard]] std::shared_ptr<void> brief_reads() const { return ledger_.ledger().brief_reads(); }
  std::map<int64_t, int64_t> attempts() const { return ledger_.ledger().attempts(ledger_.run()); }
  /// Begins an attempt. `why`: why it follows another one that did not fail. Returns its number, from 1.
  int64_t begin(const StartPoint& start, const std::string& why = "");
  /// Prints and records the amount of data, as data_summary() returns it, and the seconds that tokenising and opening them took.
  void on_data(const std::string& summary, double seconds);
  void on_event(const nlohmann::json& event);
  void on_settle(std::function<void()> answer) { ledger_.ledger().settle(ledger_.run(), std::move(answer)); }
  void on_tick() {
    const auto brief = brief_reads();
    listeners_.tick();
  }
  /// Replaces the plan after an attempt that ended with `ended`. The row then describes the new plan. Call begin()
  /// next.
  void replan(const Recipe& recipe, const Plan& plan, const Outcome& ended);
  /// Whether an attempt of this command has made a step.
  bool made_step() const { return made_step_; }
  /// Whether another process has resumed the run, because this one was considered lost.
  bool taken_up() const { return ledger_.ledger().taken_up(ledger_.run()); }
  /// Restores what the ledger had recorded about the run's settings before this resume. Does not throw, because the
  /// caller reports why the resume failed.
  void put_back() noexcept;
  /// Begins an attempt after a failure. Returns its number.
  int64_t on_restart(int restart, const std::string& why, const StartPoint& start);
  /// Closes the row and prints the result: JSON on stdout if requested, and a summary on stderr.
  void finish(const Outcome& outcome) { end(outcome, /*caller_tells_why=*/false); }
  /// Closes the row without printing the summary, for an error that the caller prints. Does not throw, so that this error is not lost.
  void fail(const Outcome& outcome) noexcept;

 private:
  /// Adds what the row says of code, inputs and prediction.
  void describe(const Recipe& recipe, const Plan& plan);
  int64_t begin_attempt(const std::string& reason, int restart, const StartPoint& start);
  void on_step(const nlohmann::json& event);
  void on_validation(const nlohmann::json& event);
  void on_hook_metrics(const nlohmann::json& event);
  void end(const Outcome& outcome, bool caller_tells_why);

  std::string home_;
  StopSignals& signals_;
  bool stop_seen_ = false;  ///< a signal came while the end waited
  const LaunchOptions& options_;
  std::string unit_;  ///< of what the model is trained on
  NewRun row_;
  LedgerListener ledger_;
  RunListeners listeners_{ledger_};
  std::shared_ptr<Provenance> provenance_;
  std::string run_dir_;
  std::shared_ptr<RunProgress> progress_;
  std::shared_ptr<RunResult> result_;
  bool made_step_ = false;
};

}  // namespace runner
