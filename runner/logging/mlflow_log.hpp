// Follows a run on an MLflow server.
#pragma once
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "runner/config/recipe.hpp"
#include "runner/ledger/new_points.hpp"
#include "runner/logging/mlflow_api.hpp"
#include "runner/logging/run_listener.hpp"

namespace runner {

/// A thread reads new points from the ledger every second and sends them. So nothing is queued in memory: while the server does not
/// answer, one warning is given, the training goes on, and the points are sent when it answers again.
///
/// The run on the server has the tag runner.run with the run's id, by which a resume finds it. MLflow keeps every point and every param
/// that it gets, and cannot change them. After a kill -9, it may have steps that the resumed run trains again. With the same settings,
/// these steps have the same values and are not sent again, so no step is there twice. With other settings, a new run begins on the
/// server, with all points of the ledger, and the earlier one gets the status KILLED. If only later steps have other settings, the tags
/// runner.changed.KEY have them. A value that the ledger has replaced is sent again, and the tag runner.replaced names it.
class MlflowLog final : public RunListener {
 public:
  /// `record`: gets the annotation "mlflow" of the run: {run, experiment, url}, which `runner show` prints, and the events "undelivered".
  explicit MlflowLog(const Recipe::Logging& settings, Ledger* record = nullptr);
  ~MlflowLog() override;
  std::string title() const override { return "MLflow"; }
  std::string place() const override;
  void begin(const AttemptStart& attempt) override;
  /// Remembers the time of the step, and that the metric has it.
  void points(const PointGroup& group) override;
  void tick() override;
  /// Waits until the rest is sent, at most 10 s and as long as RunEnd::patience; not if the server does not answer.
  void end(const RunEnd& end) override;

 private:
  /// The facts about the run that the thread needs.
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
  void continue_run(const MlflowRun& found);
  void make_run();
  /// Tags for params that differ from those on the server.
  void tag_changed_params(const MlflowRun& found);
  /// Finds the last points on the server that the ledger has replaced, so that they are sent again, and tags them.
  void tag_replaced_points(const MlflowRun& found);
  /// Sends what the ledger has.
  void send_new();
  void send(std::vector<MetricPoint> points);
  /// Sends points; if the server refuses one, then those of each metric, and leaves out the metrics that it refuses.
  void log(const std::vector<MetricPoint>& points);
  void log_at_their_times(const std::vector<MetricPoint>& points);
  /// Tells the server the end.
  void finish(const End& end);
  void know_steps_on_server(const MlflowRun& run);
  int64_t time_of(int64_t step);
  std::optional<End> end_asked();
  /// Whether the ledger lacks points that were recorded, because it cannot be written or read.
  bool ledger_lacks_points();
  /// Waits for the next look or the end. False: give up.
  bool wait(std::chrono::milliseconds time);
  bool given_up();
  /// Warns once until the server answers again.
  void warn_once(const std::string& problem);
  void warn_incomplete(const std::string& what);
  /// Returns a text that also says how the run gets there. It becomes an event of the run, since MLflow will lack a part of it.
  std::string record_problem(const std::string& what);
  /// Does without MLflow from now on.
  void give_up_for_good(const std::string& why);

  Ledger* record_;  ///< used by the thread of the training only, as the next one
  std::string recorded_run_;
  const std::string uri_, experiment_name_;
  MlflowApi api_;

  // Members of the thread:
  Job job_;
  std::unique_ptr<NewPoints> ledger_;
  std::string experiment_, run_;  ///< ids; empty: not known yet
  MlflowNames names_;
  std::set<std::string> refused_;                   ///< metrics that the server does not take
  std::map<std::string, int64_t> steps_on_server_;  ///< the last one of each name on the server, when it was asked
  std::map<std::string, int64_t> replaced_;  ///< steps whose points get the time of now, so that they are the newest
  std::vector<MetricPoint> unsent_;          ///< with names of the ledger

  std::atomic<bool> troubled_ = false;  ///< the server does not answer, and a warning says so

  std::mutex mutex_;  ///< guards the members below
  std::condition_variable changed_;
  std::optional<End> end_;
  bool give_up_ = false, done_ = false;
  nlohmann::json found_;                     ///< the run on the server, until it is recorded; null: none
  std::vector<std::string> problems_;        ///< until they are recorded
  std::map<int64_t, int64_t> times_;         ///< step -> milliseconds, of the newest steps
  std::map<std::string, int64_t> recorded_;  ///< metric -> the last step that points() was told
  std::thread thread_;
};

}  // namespace runner
