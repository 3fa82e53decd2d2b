// Supervisors with fake workers, in forked processes.
#pragma once
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/launch/follower.hpp"
#include "runner/launch/members.hpp"
#include "runner/launch/shared_resources.hpp"
#include "runner/launch/supervisor.hpp"
#include "runner/launch/worker_group.hpp"
#include "tests/support/temporary_folder.hpp"

namespace runner::testing {

using namespace std::chrono_literals;
using nlohmann::json;

inline int free_port() {
  int port = 0;
  listen_on("127.0.0.1", port);
  return port;
}

/// Node `node` of `nodes` nodes with `local_size` ranks each, started by hand.
inline Introduction introduction(int node, int nodes, int local_size, int port) {
  Introduction self;
  Placement& p = self.placement;
  p.cluster = "local";
  p.node_rank = node;
  p.num_nodes = nodes;
  p.local_size = local_size;
  p.rank = node * local_size;
  p.world_size = nodes * local_size;
  p.master_port = port;
  self.host = "host" + std::to_string(node);
  self.alike = {{"model", {{"dim", 64}}}};
  return self;
}

/// One of `world` ranks on one node, as a launcher starts them.
inline Introduction launched(int rank, int world, int port) {
  Introduction self = introduction(0, 1, world, port);
  self.placement.launched = true;
  self.placement.rank = self.placement.local_rank = rank;
  self.host = "host";
  return self;
}

inline WorkerGroup group_of(const Introduction& self) {
  WorkerGroup group;
  group.worker = FAKE_WORKER;
  place(group, self.placement);
  return group;
}

/// Starts a process whose exit code is what `act` returns, or 2 if it throws an Error.
inline pid_t start_process(const std::function<int()>& act) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  int code = 2;
  try {
    code = act();
  } catch (const Error&) {
  }
  ::_exit(code);
}

/// Waits for the end of a process: its exit code, or 128 + its signal.
inline int end_of(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct Ended {
  int code = -1;
  std::string words;  ///< first cause of the outcome, or the text of the error
};

/// A supervisor in a forked process.
class Follower {
 public:
  explicit Follower(const Introduction& self, std::chrono::seconds deadline = 20s)
      : Follower(self, deadline, group_of(self)) {}
  Follower(const Introduction& self, std::chrono::seconds deadline, const WorkerGroup& group) {
    pid_ = ::fork();
    if (pid_ != 0) return;
    Ended ended;
    try {
      MessageSocket leader = join_leader(self, deadline);
      Outcome outcome = follow(leader, self, group);
      ended = {static_cast<int>(outcome.code), outcome.first_cause};
    } catch (const Error& error) {
      ended = {static_cast<int>(error.code()), error.what()};
    }
    std::ofstream(words_file()) << ended.words;
    ::_exit(ended.code);
  }
  Follower(const Follower&) = delete;
  ~Follower() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
  }
  void send(int signal) const { ::kill(pid_, signal); }
  pid_t pid() const { return pid_; }
  Ended wait() {
    const int code = end_of(std::exchange(pid_, -1));
    return {code, read_file(words_file())};
  }

 private:
  std::string words_file() const { return folder_.path / "words"; }
  TemporaryFolder folder_;
  pid_t pid_ = -1;
};

/// The supervisor of rank 0.
struct Leader {
  TemporaryFolder folder;
  Introduction self;
  WorkerGroup group;
  SupervisorHooks hooks;
  std::vector<json> events;

  Leader(const Introduction& self, std::vector<std::string> behaviours) : self(self), group(group_of(self)) {
    group.master_port = 0;
    group.arguments = std::move(behaviours);
    group.log_dir = (folder.path / "run" / "logs").string();
    hooks.on_event = [this](const json& event) { events.push_back(event); };
  }
  Outcome go() {
    Members members(self, 20s);
    Outcome outcome = go(members);
    members.end(outcome);
    return outcome;
  }
  /// Runs the workers of this supervisor and of `members`.
  Outcome go(Members& members) { return supervise(group, hooks, &members); }
  std::vector<json> all(const std::string& kind) const {
    std::vector<json> found;
    for (const json& event : events)
      if (event["event"] == kind) found.push_back(event);
    return found;
  }
  json event(const std::string& kind, int rank) const {
    for (const json& event : all(kind))
      if (event["rank"] == rank) return event;
    return {};
  }
  /// Calls `send(signal)` once every rank is ready.
  void signal_when_ready(int signal, std::function<void(int)> send) {
    hooks.on_tick = [this, signal, send, sent = false]() mutable {
      if (sent || static_cast<int>(all("ready").size()) < self.placement.world_size) return;
      sent = true;
      send(signal);
    };
  }
};

/// The supervisor of rank 0 as a process: its exit code is 0 if the run ends well.
inline pid_t start_leader(const Introduction& self, const std::vector<std::string>& behaviours) {
  return start_process([&] { return Leader(self, behaviours).go().code == ExitCode::done ? 0 : 1; });
}

/// The connection of the node that looks for the leader at the port.
inline MessageSocket accept_node(int port, const std::string& secret = "") {
  const Descriptor listener = listen_on("127.0.0.1", port);
  return MessageSocket(Descriptor(::accept(listener.get(), nullptr, nullptr)), secret);
}

/// What the leader says to a node that shall start its workers.
inline json start_order(const std::string& log_dir, const json& arguments = json::array()) {
  return {{"say", "start"}, {"arguments", arguments}, {"environment", json::object()}, {"log_dir", log_dir},
          {"proof", "1"},   {"store_port", 1},        {"node_address", "127.0.0.1"}};
}

}  // namespace runner::testing
