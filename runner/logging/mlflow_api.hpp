// The REST API of an MLflow server (mlflow.org, "REST API", version 2.0): the calls that a run needs.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
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
  void set_tags(const std::string& id, const std::map<std::string, std::string>& tags);
  void log_params(const std::string& id, const std::map<std::string, std::string>& params);
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

}  // namespace runner
