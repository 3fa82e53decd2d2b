// Records a run: writes events to the ledger and the screen while it runs, and the result at its end.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/commands/provenance.hpp"
#include "runner/commands/run.hpp"
#include "runner/commands/start_point.hpp"
#include "runner/launch/supervisor.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/logging/metric_log.hpp"
#include "runner/report/progress.hpp"
#include "runner/selection/plan.hpp"

namespace runner {

class RunRecord {
 public:
  /// Commits the run's row, or reopens it on resume. `code` must outlive the record, which waits for it some milliseconds and
  /// otherwise adds it later. `started`: steady_seconds() at the start of the command.
  RunRecord(const std::string& home, const Recipe& recipe, const Plan& plan, const LaunchOptions& options,
            const StartPoint& start, CodeReader& code, double started);

  const std::string& run_dir() const { return run_dir_; }
  std::map<int64_t, int64_t> attempts() const { return ledger_.attempts(run_); }
  /// Begins an attempt. Returns its number, from 1.
  int64_t begin(const StartPoint& start);
  /// Prints and records the amount of data, as data_summary() returns it, and the seconds that tokenising and opening them took.
  void on_data(const std::string& summary, double seconds);
  void on_event(const nlohmann::json& event);
  void on_settle(std::function<void()> answer) { ledger_.settle(run_, std::move(answer)); }
  void on_tick();
  /// Replaces the plan after an attempt that ended with `ended`. The row then describes the new plan. Call begin()
  /// next.
  void replan(const Recipe& recipe, const Plan& plan, const Outcome& ended);
  /// Whether an attempt of this command has made a step.
  bool made_step() const { return made_step_; }
  /// Whether another process has resumed the run, because this one was considered lost.
  bool taken_up() const { return ledger_.taken_up(run_); }
  /// Restores what the ledger had recorded about the run's settings before this resume. Does not throw, because the
  /// caller reports why the resume failed.
  void put_back() noexcept;
  /// Begins an attempt after a failure. Returns its number.
  int64_t on_restart(int restart, const std::string& why, const StartPoint& start);
  /// Closes the row and prints the result: JSON on stdout if requested, and a summary on stderr.
  void finish(const Outcome& outcome);
  /// The same without the summary, for an error that the caller prints. Does not throw, so that this error is not lost.
  void fail(const Outcome& outcome) noexcept;

 private:
  int64_t begin_attempt(const std::string& reason, const StartPoint& start);
  void on_step(const nlohmann::json& event);
  void on_ready(const nlohmann::json& event);
  void on_skipped(const nlohmann::json& event);
  void add_points(std::vector<MetricPoint> points);
  void close(const Outcome& outcome);
  nlohmann::json result(const Outcome& outcome) const;
  void print_result(const Outcome& outcome) const;
  /// The last values that there are, e.g. ": val_loss 1.6823, loss 1.7011, 12.3k tokens/s".
  std::string final_metrics() const;
  void summarize(const Outcome& outcome) const;
  void print_profile() const;

  Ledger ledger_;
  std::string home_;
  const LaunchOptions& options_;
  Provenance provenance_;
  int64_t world_size_, max_steps_;
  int64_t print_every_;
  bool kept_;
  double started_;
  int64_t confirms_bytes_;  ///< predicted memory, to be printed with the measured memory of a step; 0 = print nothing
  std::chrono::seconds patience_;  ///< how long close() may wait for the ledger; only its first call waits
  std::string run_, run_dir_;
  MetricLogs logs_;
  std::unique_ptr<Progress> progress_;
  int ready_ = 0;
  bool made_step_ = false;
  double last_heartbeat_ = 0;
  // The values of the result.
  int64_t steps_ = 0;
  std::optional<double> final_loss_, first_step_s_, data_seconds_;
  std::string monitor_;                          ///< checkpoint.monitor
  std::string unit_;                             ///< of what the model predicts: tokens or rows
  std::optional<double> monitor_value_;          ///< last value of `monitor_` if that is not the loss
  std::string stopped_by_;                       ///< why the run ended before its last step, if no signal stopped it
  int64_t skipped_steps_ = 0;                    ///< because they were not finite, in all attempts
  double timed_tokens_ = 0, timed_seconds_ = 0;  ///< sums over all steps after the first
  int64_t timed_step_rows_;                      ///< of the steps whose time is predicted; 0: of all steps
  std::vector<double> step_seconds_;
  double lost_share_ = 0;  ///< share of time in which other work used the CPUs; of the rank with the largest share
  std::map<int, int64_t> peak_bytes_, peak_resident_;
  nlohmann::json profile_;  ///< the last event "profile"
  bool traced_ = false;     ///< ranks have written traces
};

}  // namespace runner
