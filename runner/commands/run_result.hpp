// The result of a run: what its row, its JSON line and its summary on the screen say.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/commands/run.hpp"
#include "runner/logging/run_listener.hpp"
#include "runner/selection/plan.hpp"

namespace runner {

class RunResult final : public RunListener {
 public:
  /// `run`: its id. `started`: steady_seconds() at the start of the command.
  RunResult(std::string run, std::string run_dir, const Recipe& recipe, const Plan& plan, const LaunchOptions& options,
            double started);
  /// A new plan, before its attempt begins.
  void replan(const Plan& plan);
  /// The seconds that tokenising and opening the data took.
  void set_data_seconds(double seconds) { data_seconds_ = seconds; }

  std::string title() const override { return "the summary"; }
  void begin(const AttemptStart& attempt) override;
  void points(const PointGroup& group) override;
  void event(const std::string& kind, const nlohmann::json& fields) override;
  /// Prints the JSON line if it was asked for, and the summary on stderr unless the caller tells why the run ended.
  void end(const RunEnd& end) override;

  /// The annotation "measured": the JSON line, and what later predictions use.
  nlohmann::json measured(const Outcome& outcome) const;
  /// Why the run ended; empty after its last step.
  std::string why(const Outcome& outcome) const;

 private:
  void take_step(const PointGroup& group);
  nlohmann::json line(const Outcome& outcome) const;
  /// The last values that there are, e.g. ": val_loss 1.6823, loss 1.7011, 12.3k tokens/s".
  std::string final_metrics() const;
  void summarize(const Outcome& outcome) const;
  void say_how_to_continue(const Outcome& outcome) const;
  void print_profile() const;

  std::string run_, run_dir_;
  bool json_;  ///< the JSON line was asked for
  bool kept_;  ///< the run's folder is kept
  double started_;
  std::string monitor_;      ///< checkpoint.monitor
  std::string unit_;         ///< of what the model is trained on
  int64_t timed_step_rows_;  ///< of the steps whose time is predicted; 0: of all steps
  int64_t steps_ = 0;
  std::optional<double> final_loss_, first_step_s_, data_seconds_;
  std::optional<double> monitor_value_;          ///< last value of `monitor_` if that is not the loss
  std::string stopped_by_;                       ///< why the run ended before its last step, if no signal stopped it
  int64_t skipped_steps_ = 0;                    ///< because they were not finite, in all attempts
  double timed_tokens_ = 0, timed_seconds_ = 0;  ///< sums over all steps after the first
  std::vector<double> step_seconds_;
  double lost_share_ = 0;  ///< share of time in which other work used the CPUs; of the rank with the largest share
  std::map<int, int64_t> peak_bytes_, peak_resident_;
  std::map<int, double> wait_shares_;  ///< of the ranks of a pipeline: how much of a step each waits
  nlohmann::json profile_;  ///< the last event "profile"
  bool traced_ = false;     ///< ranks have written traces
};

}  // namespace runner
