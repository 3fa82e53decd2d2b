// What a run leaves behind while it goes on: events into the ledger and onto the screen, and the result at the end.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/commands/run.hpp"
#include "runner/launch/supervisor.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/report/progress.hpp"
#include "runner/selection/plan.hpp"

namespace runner {

/// Where a run, or a restart of it, begins: at its first step without a checkpoint.
struct StartPoint {
  std::string checkpoint;
  int64_t step = 0;     ///< points after it are dropped: they are computed again
  int64_t attempt = 0;  ///< that wrote the checkpoint; 0: not known
};

class RunRecord {
 public:
  /// Commits the run's row (or reopens it on resume). `started`: steady_seconds() when the command began.
  RunRecord(const std::string& home, const Recipe& recipe, const Plan& plan, const LaunchOptions& options,
            double started);

  const std::string& run_dir() const { return run_dir_; }
  std::map<int64_t, int64_t> attempts() const { return ledger_.attempts(run_); }
  /// Returns the number of the attempt that begins, from 1.
  int64_t begin(const StartPoint& start);
  void on_event(const nlohmann::json& event);
  void on_settle(std::function<void()> answer) { ledger_.settle(run_, std::move(answer)); }
  void on_tick();
  /// Another plan takes over after an attempt that ended so: the row describes it from now on. begin() follows.
  void replan(const Recipe& recipe, const Plan& plan, const Outcome& ended);
  int64_t steps() const { return steps_; }
  /// As begin().
  int64_t on_restart(int restart, const std::string& why, const StartPoint& start);
  /// Closes the row and prints the result: JSON on stdout if asked for, and a summary on stderr.
  void finish(const Outcome& outcome);
  /// The same without the summary, for an error that the caller prints. Does not throw, so that the error is not lost.
  void fail(const Outcome& outcome) noexcept;

 private:
  int64_t begin_attempt(const std::string& reason, const StartPoint& start);
  void on_step(const nlohmann::json& event);
  void on_ready(const nlohmann::json& event);
  void add_points(std::vector<MetricPoint> points);
  void close(const Outcome& outcome);
  nlohmann::json result(const Outcome& outcome) const;
  /// "val_loss 1.6823, loss 1.7011".
  std::string final_metrics() const;
  void summarize(const Outcome& outcome) const;

  Ledger ledger_;
  std::string home_;
  const LaunchOptions& options_;
  int64_t world_size_, max_steps_;
  int64_t print_every_;
  bool kept_;
  double started_;
  int64_t confirms_bytes_;  ///< > 0: predicted memory, to be printed with what a step takes
  std::string run_, run_dir_;
  std::unique_ptr<Progress> progress_;
  int ready_ = 0;
  double last_heartbeat_ = 0;
  // What the result is made of.
  int64_t steps_ = 0;
  std::optional<double> final_loss_, first_step_s_;
  std::string monitor_;                          ///< checkpoint.monitor
  std::optional<double> monitor_value_;          ///< its last value, where it is not the loss
  std::string stopped_by_;                       ///< what ended it before its last step, unless a person did
  double timed_tokens_ = 0, timed_seconds_ = 0;  ///< after the first step
  std::vector<double> step_seconds_;
  double lost_share_ = 0;  ///< of the time, CPUs that other work kept from the rank that lost most
  std::map<int, int64_t> peak_bytes_, peak_resident_;
};

}  // namespace runner
