// A trial as a child process: `runner run` or `runner resume`, with events on stdout and messages in a log.
#pragma once
#include <signal.h>
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
  std::map<std::string, std::string> environment;  ///< added to our environment
  std::string log_file;                            ///< stderr, appended
};

/// The child leads a new process group, so that Ctrl-C reaches the sweep only. It is killed with the sweep, also after kill -9
/// (PR_SET_PDEATHSIG), and so are its workers. Create it on a thread that exists as long as the child.
class TrialProcess {
 public:
  /// Throws Error(environment).
  explicit TrialProcess(const TrialCommand& command);
  ~TrialProcess();  ///< kills the child if it still runs
  TrialProcess(const TrialProcess&) = delete;

  /// A descriptor to poll for output and end; -1 after the end.
  int fd() const { return out_.get(); }
  /// JSON objects that have arrived on stdout. Does not wait.
  std::vector<nlohmann::json> read();
  struct Exit {
    int code = 0, signal = 0;
  };
  /// Waits for the exit if stdout has ended; returns nothing before that.
  std::optional<Exit> wait();
  /// Sends SIGINT if `signal`, which reached the sweep, is that, otherwise SIGTERM: the trial writes a checkpoint and
  /// ends.
  void stop(int signal = SIGTERM) const { send(signal == SIGINT ? SIGINT : SIGTERM); }
  void kill() const { send(SIGKILL); }
  /// Stops the trial and its workers as Ctrl-Z does.
  void suspend() const { send(SIGTSTP); }
  /// Waits until the trial has stopped or ended, so that resume() cannot come first.
  void wait_until_suspended() const;
  void resume() const { send(SIGCONT); }
  /// The last lines that this process wrote to its log.
  std::string log_tail() const { return log_.tail(/*lines=*/6); }

 private:
  void send(int signal) const {
    if (pid_ > 0) ::kill(pid_, signal);
  }

  pid_t pid_ = -1;
  Descriptor out_;
  LineReader lines_;
  ChildLog log_;
};

}  // namespace runner::sweep
