// The supervisor's interface to a worker: a process on this host, or one that another supervisor runs.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace runner {

/// How a worker ended.
struct WorkerExit {
  int code = 0;                ///< exit code if signal is 0
  int signal = 0;              ///< the signal that killed it, or 0
  bool oom_suspected = false;  ///< the kernel's out-of-memory killer may have killed it
  std::string log_tail;        ///< the last lines of its log, "" if it wrote none
  std::string gone_with;       ///< host of its supervisor if the connection to that supervisor was lost, otherwise ""
};

class Worker {
 public:
  virtual ~Worker() = default;
  virtual int rank() const = 0;
  virtual bool running() const = 0;
  virtual int event_fd() const = 0;  ///< readable if there may be events; -1 if there will be no more
  /// The events received since the last call, about 1 MiB at most, so that many events do not delay signals.
  virtual std::vector<nlohmann::json> read_events() = 0;
  /// A function that answers its `settle` event (events.hpp). It may be called on any thread, also after the worker's end.
  virtual std::function<void()> answer() = 0;
  /// Returns the worker's exit, once; empty before and afterwards.
  virtual std::optional<WorkerExit> poll_exit() = 0;
  virtual void send(int signal) = 0;        ///< sends a signal to the worker
  virtual void send_group(int signal) = 0;  ///< sends a signal to the worker and its child processes
  virtual const std::string& log_file() const = 0;
};

}  // namespace runner
