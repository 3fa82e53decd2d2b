// A worker on this host: a child process with an event pipe and a log file.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/child_process.hpp"
#include "runner/launch/events.hpp"
#include "runner/launch/worker.hpp"

namespace runner {

/// The settings of a worker process.
struct WorkerCommand {
  int rank = 0;   ///< the first one
  int ranks = 1;  ///< ranks in the process; each is a thread
  std::string program;
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;  ///< added to this process's environment
  std::vector<int> inherited;                      ///< further descriptors that the child keeps, with the same numbers
  std::string log_file;                            ///< stdout and stderr are appended; stdin is /dev/null
  std::string log_heading = {};                    ///< a line that separates this output from that of earlier workers
  int64_t log_bytes_max = int64_t{64} << 20;       ///< a larger log loses its middle, see ChildLog::bound()
  std::chrono::milliseconds stopped_limit = std::chrono::minutes(2);  ///< as in WorkerGroup
};

/// The thread that creates the object must outlive it: the kernel kills the child when that thread ends (PR_SET_PDEATHSIG).
/// Therefore no worker survives a kill -9 of the supervisor. The child leads a new process group: a Ctrl-C on the terminal
/// reaches the supervisor only, and send_group() also reaches the child's child processes.
class WorkerProcess final : public Worker {
 public:
  /// Throws Error(environment) if the program or its log cannot be opened.
  explicit WorkerProcess(const WorkerCommand& command);
  ~WorkerProcess() override;  ///< kills and reaps
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  int rank() const override { return rank_; }
  bool running() const override { return running_; }
  int event_fd() const override { return events_.get(); }  ///< -1 after the end of the pipe was read
  /// Adds a `failed` event if the process has been stopped for too long (SIGSTOP), once.
  std::vector<nlohmann::json> read_events() override;
  std::function<void()> answer() override;
  /// If the worker has ended, also kills the rest of its process group and reaps the worker.
  std::optional<WorkerExit> poll_exit() override;
  void send(int signal) override;
  void send_group(int signal) override;
  const std::string& log_file() const override { return log_.path(); }

 private:
  bool stopped_too_long();

  int rank_;
  pid_t pid_ = -1;
  bool running_ = false;
  Descriptor events_;
  std::shared_ptr<Descriptor> settled_;  ///< the eventfd on which the worker waits after `settle`
  EventReader reader_;
  ChildLog log_;
  int64_t log_bytes_max_;
  std::optional<long> oom_kills_before_;
  double stopped_limit_, looked_at_ = 0, stopped_for_ = 0;  ///< in seconds, of the process
};

}  // namespace runner
