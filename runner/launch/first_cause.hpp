// Which of several failures came first: one rank dies, its peers notice, and only the first is what a person must know.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/launch/worker.hpp"

namespace runner {

struct Failure {
  /// Steady seconds, when rank 0's supervisor learnt of it. Not the event's own time: hosts' clocks differ.
  double seen = 0;
  int rank = 0;
  std::string kind;          ///< as in `failed` events; "crash" for an exit without one
  bool consequence = false;  ///< of another rank's failure, or of our stopping it
  std::string message;       ///< names the rank

  ExitCode code() const;  ///< usage 2, environment 4, else 1
  /// The same recipe fails the same way: a usage error, or a loss that became NaN where the recipe says stop.
  bool hopeless() const { return kind == "usage" || kind == "nonfinite"; }
};

/// From a `failed` event that came at `seen`; kind "collective" is a peer noticing that another rank has gone.
Failure failure_from_event(const nlohmann::json& event, double seen);

/// The earliest that is no consequence; else the earliest. nullptr if there is none.
const Failure* first_cause(const std::vector<Failure>& failures);

/// "rank 1 was killed by signal 11 (SIGSEGV)", "rank 0 exited with code 7", with the end of `log_file`.
std::string describe_exit(int rank, const WorkerExit& exit, const std::string& log_file);

}  // namespace runner
