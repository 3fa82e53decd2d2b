// The REST API of an MLflow server (mlflow.org, "REST API", version 2.0): the calls that a run needs, and the names that it accepts.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/http/http.hpp"
#include "runner/ledger/ledger.hpp"

namespace runner {

/// A call that failed.
class MlflowFailure : public Error {
 public:
  MlflowFailure(const std::string& message, int status, bool may_recover)
      : Error(ExitCode::environment, message), status_(status), may_recover_(may_recover) {}
  int status() const { return status_; }  ///< of HTTP; 0: there was no reply
  /// Whether the same call may succeed later.
  bool may_recover() const { return may_recover_; }

 private:
  int status_;
  bool may_recover_;
};

/// A run on the server.
struct MlflowRun {
  std::string id;
  std::map<std::string, std::string> tags = {};
  struct Point {
    int64_t step = 0;
    double value = 0;
  };
  std::map<std::string, Point> last = {};  ///< of each metric, by its name on the server
  std::map<std::string, std::string> params = {};
};

/// All functions throw MlflowFailure.
class MlflowApi {
 public:
  /// `uri`: without the path of the API. Takes MLFLOW_TRACKING_USERNAME and _PASSWORD, or _TOKEN, from the environment.
  explicit MlflowApi(std::string uri);
  /// The id of an experiment, which is made if there is none of this name.
  std::string experiment(const std::string& name);
  /// The newest run of the experiment with this tag.
  std::optional<MlflowRun> find_run(const std::string& experiment, const std::string& tag, const std::string& value);
  MlflowRun run(const std::string& id);
  /// `tags`: at least one.
  std::string create_run(const std::string& experiment, const std::string& name, int64_t start_ms,
                         const std::map<std::string, std::string>& tags);
  /// `status`: RUNNING, FINISHED, FAILED or KILLED. `end_ms`: 0 for RUNNING.
  void update_run(const std::string& id, const std::string& status, int64_t end_ms);
  /// `kind`: tags or params.
  void log_texts(const std::string& id, const char* kind, const std::map<std::string, std::string>& texts);
  /// At most 1,000 points with names that MLflow accepts; `times`: of each, in milliseconds since 1970.
  void log_metrics(const std::string& id, const std::vector<MetricPoint>& points, const std::vector<int64_t>& times);
  /// See HttpClient::stop().
  void stop() { client_.stop(); }

 private:
  nlohmann::json call(const std::string& method, const std::string& what, const nlohmann::json& body);

  const std::string base_;
  std::vector<std::string> headers_ = {"Content-Type: application/json"};
  std::string user_, password_;
  HttpClient client_;
};

/// A name that MLflow accepts: a normal relative path of at most 230 bytes, of letters, digits, and _ - . / and spaces; other
/// characters, and the parts "", "." and "..", become _.
std::string mlflow_name(std::string name);

/// The names of a run's metrics. Two metrics whose names become the same get different ones, the later one with a hash at its end. A
/// name that had to be changed is written down as a tag of the run, runner.metric.NAME = the name in the ledger, so that a resume
/// chooses the same.
class MlflowNames {
 public:
  /// Takes over the names in the tags of a run on the server.
  void restore(const std::map<std::string, std::string>& tags);
  const std::string& of(const std::string& metric);
  /// The tags for names that were changed since the last call.
  std::map<std::string, std::string> take_new_tags();
  /// The ledger's name of a metric on the server.
  std::string metric_of(const std::string& name) const;

 private:
  std::map<std::string, std::string> names_, metrics_;  ///< metric -> name on the server, and the inverse
  std::map<std::string, std::string> new_tags_;
};

}  // namespace runner
