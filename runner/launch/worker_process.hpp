// One worker: a child process with its event pipe and its log file.
#pragma once
#include <sys/types.h>

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

/// What a worker process starts from.
struct WorkerCommand {
  int rank = 0;
  std::string program;
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;  ///< on top of ours
  std::vector<int> inherited;                      ///< further descriptors that the child keeps, at the same number
  std::string log_file;                            ///< stdout and stderr are appended; stdin is /dev/null
};

/// Owned by the thread that started it, which must outlive it: the kernel kills the child when that thread ends
/// (PR_SET_PDEATHSIG), which is how no worker survives a kill -9 of the supervisor.
/// The child leads a process group of its own. A Ctrl-C on the terminal therefore reaches the supervisor only, and a
/// kill takes the child's own children too.
class WorkerProcess final : public Worker {
 public:
  /// Throws Error(environment) if the program or its log cannot be opened.
  explicit WorkerProcess(const WorkerCommand& command);
  ~WorkerProcess() override;  ///< kills and reaps
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  int rank() const override { return rank_; }
  bool running() const override { return running_; }
  int event_fd() const override { return events_.get(); }  ///< -1 once its end was read
  std::vector<nlohmann::json> read_events() override;
  std::function<void()> answer() override;
  /// Kills what is left of its process group, then reaps it.
  std::optional<WorkerExit> poll_exit() override;
  void send(int signal) override;
  void send_group(int signal) override;
  const std::string& log_file() const override { return log_.path(); }

 private:
  int rank_;
  pid_t pid_ = -1;
  bool running_ = false;
  Descriptor events_;
  std::shared_ptr<Descriptor> settled_;  ///< an eventfd: the worker waits for it after `settle`
  EventReader reader_;
  ChildLog log_;
  std::optional<long> oom_kills_before_;
};

}  // namespace runner
