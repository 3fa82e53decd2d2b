// The outcome of a run, and the first cause among several failures: when one rank dies, other ranks fail too, and only the first
// failure is reported.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/launch/worker.hpp"

namespace runner {

struct Failure {
  /// When rank 0's supervisor received the failure, in steady seconds. The event's time is not used, because clocks of hosts
  /// differ.
  double seen = 0;
  int rank = 0;
  std::string kind;          ///< as in `failed` events; "crash" for an exit without such an event
  bool consequence = false;  ///< caused by another rank's failure, or by the supervisor stopping the rank
  std::string message;       ///< includes the rank
  bool node_lost = false;    ///< its supervisor is gone

  ExitCode code() const;  ///< usage 2, environment 4, else 1
  /// Whether a restart would fail in the same way: usage errors and non-finite losses.
  bool hopeless() const { return kind == "usage" || kind == "nonfinite"; }
};

/// Converts a `failed` event received at time `seen`. Kind "collective" is a consequence: another rank has ended.
Failure failure_from_event(const nlohmann::json& event, double seen);

/// The earliest failure that is not a consequence, otherwise the earliest one; nullptr if there are no failures.
const Failure* first_cause(const std::vector<Failure>& failures);

/// "SIGHUP".
std::string signal_name(int signal);

/// "rank 1 was killed by signal 11 (SIGSEGV)" or "rank 0 exited with code 7", followed by the last lines of `log_file`.
std::string describe_exit(int rank, const WorkerExit& exit, const std::string& log_file);

struct Outcome {
  ExitCode code = ExitCode::done;
  std::string status;  ///< finished | failed | interrupted | preempted
  /// The rank that failed first, and how: its `failed` event, its signal or its exit code.
  std::string first_cause;
  std::string kind = "";  ///< kind of the failure, as in its `failed` event (events.hpp)
  int restarts = 0;
  /// The attempt of an elastic run has ended because nodes leave, join or are lost: training goes on with those that are there.
  bool regroup = false;
};

}  // namespace runner
