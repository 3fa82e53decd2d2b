// A worker as its group's supervisor sees it: a process of this host, or one that another supervisor holds for it.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace runner {

/// How a worker ended.
struct WorkerExit {
  int code = 0;                ///< when signal is 0
  int signal = 0;              ///< that killed it
  bool oom_suspected = false;  ///< the kernel's out-of-memory killer struck on its host meanwhile
  std::string log_tail;        ///< the last lines that it wrote, "" if none
  std::string gone_with;       ///< the host whose supervisor went away, and the worker with it; else ""
};

class Worker {
 public:
  virtual ~Worker() = default;
  virtual int rank() const = 0;
  virtual bool running() const = 0;
  virtual int event_fd() const = 0;  ///< becomes readable when there may be events; -1: there will be none
  /// What came since the last call, a mebibyte or so at most: a flood must not keep us from signals.
  virtual std::vector<nlohmann::json> read_events() = 0;
  /// What answers its `settle` event (events.hpp). May be called on any thread, also once the worker has ended.
  virtual std::function<void()> answer() = 0;
  /// Its end, once.
  virtual std::optional<WorkerExit> poll_exit() = 0;
  virtual void send(int signal) = 0;        ///< to the worker
  virtual void send_group(int signal) = 0;  ///< to it and its children
  virtual const std::string& log_file() const = 0;
};

}  // namespace runner
