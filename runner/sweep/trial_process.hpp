// A trial as a child process: `runner run` or `runner resume` with its events on stdout and its talk in a log.
#pragma once
#include <sys/types.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/child_process.hpp"
#include "runner/launch/lines.hpp"

namespace runner::sweep {

struct TrialCommand {
  std::string program;
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;  ///< on top of ours
  std::string log_file;                            ///< stderr, appended
};

/// Leads a process group of its own, so that Ctrl-C reaches the sweep only. Killed with the sweep, also when that is
/// killed with -9 (PR_SET_PDEATHSIG; its workers die with it in turn): make it on a thread that stays.
class TrialProcess {
 public:
  /// Throws Error(environment).
  explicit TrialProcess(const TrialCommand& command);
  ~TrialProcess();  ///< kills what still runs
  TrialProcess(const TrialProcess&) = delete;

  /// To poll for input and end; -1 after the end.
  int fd() const { return out_.get(); }
  /// JSON objects that came on stdout, without waiting.
  std::vector<nlohmann::json> read();
  struct Exit {
    int code = 0, signal = 0;
  };
  /// Waits, once stdout has ended; nothing before.
  std::optional<Exit> wait();
  /// SIGTERM: a checkpoint, then the end.
  void stop() const;
  void kill() const;
  /// The last lines of what this process wrote to its log.
  std::string log_tail() const;

 private:
  void send(int signal) const;

  pid_t pid_ = -1;
  Descriptor out_;
  LineReader lines_;
  ChildLog log_;
};

}  // namespace runner::sweep
