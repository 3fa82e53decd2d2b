// Follows a run on an MLflow server.
#pragma once
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "runner/config/recipe.hpp"
#include "runner/ledger/new_points.hpp"
#include "runner/logging/mlflow_api.hpp"
#include "runner/logging/run_listener.hpp"

namespace runner {

/// A thread reads new points from the ledger every second and sends them. So nothing is queued in memory: while the server does not
/// answer, one warning is given, the training goes on, and the points are sent when it answers again.
///
/// The run on the server has the tag runner.run with the run's id, by which a resume finds it. MLflow keeps every point that it gets and
/// cannot delete one. After a kill -9, it may have steps that the resumed run trains again. With the same settings, these steps have the
/// same values and are not sent again, so no step is there twice. With other settings, a new run begins on the server, with all points of
/// the ledger, and the earlier one gets the status KILLED.
class MlflowLog final : public RunListener {
 public:
  /// `record`: gets the annotation "mlflow" of the run: {run, experiment, url}, which `runner show` prints.
  explicit MlflowLog(const Recipe::Logging& settings, Ledger* record = nullptr);
  ~MlflowLog() override;
  std::string title() const override { return "MLflow"; }
  std::string place() const override;
  void begin(const AttemptStart& attempt) override;
  /// Remembers the time of the step.
  void points(const PointGroup& group) override;
  void tick() override;
  /// Waits until the rest is sent, at most 10 s; not if the server does not answer.
  void end(const RunEnd& end) override;

 private:
  /// What the thread needs to know about the run.
  struct Job {
    std::string home, run, name, settings;  ///< settings: a hash of the resolved recipe
    int64_t started_ms = 0, from_step = 0;
    std::map<std::string, std::string> tags = {}, params = {};
  };
  /// The end, for the server.
  struct End {
    std::string status;
    int64_t time_ms = 0;
  };

  void follow();
  /// Finds the run on the server, or makes it.
  void open();
  void take_up(MlflowRun found);
  void make_run();
  /// Sends what the ledger has. Returns false if the run has ended meanwhile, and its end is sent, too.
  bool send_new();
  void send(std::vector<MetricPoint> points);
  int64_t time_of(int64_t step);
  /// Waits for the next look or the end. False: give up.
  bool wait(std::chrono::milliseconds time);
  bool given_up();
  /// One warning until the server answers again.
  void tell_trouble(const std::string& problem);
  void tell_lack();

  Ledger* record_;  ///< used by the thread of the training only, as the next one
  std::string recorded_run_;
  const std::string uri_, experiment_name_;
  MlflowApi api_;

  // Of the thread:
  Job job_;
  std::unique_ptr<NewPoints> ledger_;
  std::string experiment_, run_;          ///< ids; empty: not known yet
  std::map<std::string, int64_t> there_;  ///< the last step of each metric on the server, when it was asked
  std::vector<MetricPoint> unsent_;

  std::atomic<bool> troubled_ = false;  ///< the server does not answer, and a warning says so

  std::mutex mutex_;  ///< guards the members below
  std::condition_variable changed_;
  std::optional<End> end_;
  bool give_up_ = false, done_ = false;
  nlohmann::json found_;              ///< the run on the server, until it is recorded; null: none
  std::map<int64_t, int64_t> times_;  ///< step -> milliseconds, of the newest steps
  std::thread thread_;
};

}  // namespace runner
