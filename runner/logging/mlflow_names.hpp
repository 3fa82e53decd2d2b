// Names of metrics on an MLflow server.
#pragma once
#include <map>
#include <string>

namespace runner {

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
