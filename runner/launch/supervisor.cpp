// The supervising loop: one Attempt from start to end, repeated while restarts are left.
#include "runner/launch/supervisor.hpp"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <deque>
#include <filesystem>

#include "runner/base/clock.hpp"
#include "runner/base/text.hpp"
#include "runner/launch/first_cause.hpp"
#include "runner/launch/shared_resources.hpp"
#include "runner/launch/stop_signals.hpp"
#include "runner/launch/worker_process.hpp"

namespace runner {

namespace {

using nlohmann::json;

constexpr double tick_seconds = 0.1;
constexpr double failure_grace_seconds = 2;
/// Launchers pass on the Ctrl-C that the terminal already gave us; a person's second one comes later than this.
constexpr double second_interrupt_seconds = 0.5;

/// From the start of the workers to the end of the last one.
class Attempt {
 public:
  Attempt(const WorkerGroup& group, const SupervisorHooks& hooks, StopSignals& signals);
  Outcome run();
  /// After run(): a failure that another attempt may not repeat, while nobody asked us to stop.
  bool worth_restarting() const;

 private:
  void start_workers();
  std::map<std::string, std::string> rank_environment(int local) const;
  void wait() const;
  void handle_signals();
  void handle_interrupt(int signal);
  void suspend();
  void handle_events(WorkerProcess& worker);
  void handle_exit(WorkerProcess& worker, const WorkerExit& exit);
  void stop_for_failure();
  void enforce_deadline();
  void kill_workers();
  void note(const std::string& message) const;
  bool failed_already(int rank) const;
  bool anyone_running() const;
  std::string running_ranks() const;
  Outcome outcome() const;

  const WorkerGroup& group_;
  const SupervisorHooks& hooks_;
  StopSignals& signals_;
  int master_port_;
  Descriptor listener_, shared_memory_;
  std::deque<WorkerProcess> workers_;

  int asked_by_ = 0;  ///< SIGINT or SIGTERM, once somebody asked us to stop
  double asked_at_ = 0;
  bool stopping_ = false;    ///< workers were sent SIGTERM, whyever
  bool killed_ = false;      ///< ... and SIGKILL
  double kill_at_ = 0;       ///< steady seconds; with stopping_
  std::string kill_reason_;  ///< who did not stop in time, for the outcome
  std::vector<Failure> failures_;
  bool all_finished_ = true;  ///< no worker exited with anything but 0
  std::optional<long> oom_kills_before_ = oom_kill_count();
};

Attempt::Attempt(const WorkerGroup& group, const SupervisorHooks& hooks, StopSignals& signals)
    : group_(group), hooks_(hooks), signals_(signals), master_port_(group.master_port) {
  if (group.first_rank == 0) listener_ = listen_on(group.master_addr, master_port_);
  RUNNER_CHECK(master_port_ > 0, "rank {} is not told the port of rank 0", group.first_rank);
  if (group.shm_bytes > 0) shared_memory_ = make_shared_memory(group.shm_bytes);
  start_workers();
}

std::map<std::string, std::string> Attempt::rank_environment(int local) const {
  std::map<std::string, std::string> variables = group_.environment;
  int local_world = group_.local_world_size > 0 ? group_.local_world_size : group_.local_size;
  variables["RANK"] = std::to_string(group_.first_rank + local);
  variables["LOCAL_RANK"] = std::to_string(group_.local_rank_offset + local);
  variables["WORLD_SIZE"] = std::to_string(group_.world_size);
  variables["LOCAL_WORLD_SIZE"] = std::to_string(local_world);
  variables["NODE_RANK"] = std::to_string(group_.node_rank);
  variables["MASTER_ADDR"] = group_.master_addr;
  variables["MASTER_PORT"] = std::to_string(master_port_);
  if (local == 0 && listener_.is_open()) variables["RUNNER_LISTEN_FD"] = std::to_string(listener_.get());
  if (shared_memory_.is_open()) variables["RUNNER_SHM_FD"] = std::to_string(shared_memory_.get());
  return variables;
}

void Attempt::start_workers() {
  std::filesystem::create_directories(group_.log_dir);
  for (int local = 0; local < group_.local_size; ++local) {
    WorkerCommand command;
    command.rank = group_.first_rank + local;
    command.program = group_.worker;
    command.arguments = group_.arguments;
    command.environment = rank_environment(local);
    command.log_file = (std::filesystem::path(group_.log_dir) / fmt::format("rank-{}.log", command.rank)).string();
    if (local == 0 && listener_.is_open()) command.inherited.push_back(listener_.get());
    if (shared_memory_.is_open()) command.inherited.push_back(shared_memory_.get());
    workers_.emplace_back(command);
  }
  listener_.close();  // rank 0 holds it now; if it dies, its peers' connections are refused instead of waiting here
  shared_memory_.close();
}

Outcome Attempt::run() {
  double next_tick = 0;
  while (anyone_running()) {
    wait();
    handle_signals();
    for (auto& worker : workers_) handle_events(worker);
    for (auto& worker : workers_)
      if (auto exit = worker.poll_exit()) {
        handle_events(worker);  // what it wrote between the last look and its end
        handle_exit(worker, *exit);
      }
    enforce_deadline();
    if (hooks_.on_tick && steady_seconds() >= next_tick) {
      hooks_.on_tick();
      next_tick = steady_seconds() + tick_seconds;
    }
  }
  return outcome();
}

/// Until a signal, an event or the next tick. A worker's end closes its pipe, which wakes us too.
void Attempt::wait() const {
  std::vector<pollfd> watched{{signals_.fd(), POLLIN, 0}};
  for (const auto& worker : workers_)
    if (worker.event_fd() >= 0) watched.push_back({worker.event_fd(), POLLIN, 0});
  ::poll(watched.data(), watched.size(), static_cast<int>(tick_seconds * 1000));
}

void Attempt::handle_signals() {
  for (int signal : signals_.take()) {
    if (signal == SIGTSTP)
      suspend();
    else
      handle_interrupt(signal == SIGHUP ? SIGTERM : signal);
  }
}

void Attempt::handle_interrupt(int signal) {
  const char* name = signal == SIGINT ? "SIGINT" : "SIGTERM";
  double now = steady_seconds();
  if (asked_by_ != 0) {
    if (signal == SIGINT && now - asked_at_ >= second_interrupt_seconds && !killed_) {
      kill_reason_ = fmt::format("killed {} at a second Ctrl-C", running_ranks());
      kill_workers();
    }
    return;
  }
  asked_by_ = signal;
  asked_at_ = now;
  if (stopping_) return;  // a failure came first; it remains the cause, but there will be no restart
  stopping_ = true;
  kill_at_ = now + static_cast<double>(group_.grace_time.count());
  for (auto& worker : workers_) worker.send(SIGTERM);
  note(fmt::format("{}: asked {} to checkpoint and stop within {} (Ctrl-C again kills at once)", name, running_ranks(),
                   write_duration(group_.grace_time)));
}

/// Ctrl-Z: the workers are in other process groups, so the terminal stopped nobody yet.
void Attempt::suspend() {
  for (auto& worker : workers_) worker.send_group(SIGSTOP);
  double stopped_at = steady_seconds();
  ::raise(SIGSTOP);
  double pause = steady_seconds() - stopped_at;
  kill_at_ += pause;
  asked_at_ += pause;
  for (auto& worker : workers_) worker.send_group(SIGCONT);
}

void Attempt::handle_events(WorkerProcess& worker) {
  for (const json& event : worker.read_events()) {
    bool failed = event["event"] == "failed";
    if (failed) failures_.push_back(failure_from_event(event));
    if (hooks_.on_event) hooks_.on_event(event);
    if (failed) stop_for_failure();
  }
}

void Attempt::handle_exit(WorkerProcess& worker, const WorkerExit& exit) {
  if (exit.signal == 0 && exit.code == static_cast<int>(ExitCode::done)) return;
  all_finished_ = false;
  if ((exit.signal == 0 && exit.code == static_cast<int>(ExitCode::preempted)) || failed_already(worker.rank())) return;
  // Slurm signals every process of a step: this one had no handler yet, and our own SIGTERM is on its way.
  if (exit.signal == SIGTERM && !stopping_) handle_interrupt(SIGTERM);
  if ((stopping_ && exit.signal == SIGTERM) || (killed_ && exit.signal == SIGKILL)) return;

  auto oom_kills = oom_kill_count();
  bool oom_suspected = !oom_kills || !oom_kills_before_ || *oom_kills > *oom_kills_before_;
  Failure failure;
  failure.time = wall_seconds();
  failure.rank = worker.rank();
  failure.kind = "crash";
  failure.consequence = stopping_ && exit.signal == 0;
  failure.message = describe_exit(worker.rank(), exit, oom_suspected);
  std::string tail = worker.log_tail();
  failure.message += tail.empty() ? fmt::format("; it wrote nothing to {}", worker.log_file())
                                  : fmt::format("; the end of {}:\n{}", worker.log_file(), tail);
  failures_.push_back(failure);
  stop_for_failure();
}

/// The others cannot reach a step boundary any more: a short notice, then the end. Ranks that reported a failure are on
/// their way out and only wait for the deadline.
void Attempt::stop_for_failure() {
  double deadline = steady_seconds() + failure_grace_seconds;
  kill_at_ = stopping_ ? std::min(kill_at_, deadline) : deadline;
  if (stopping_) return;
  stopping_ = true;
  for (auto& worker : workers_)
    if (!failed_already(worker.rank())) worker.send(SIGTERM);
}

void Attempt::enforce_deadline() {
  if (!stopping_ || killed_ || steady_seconds() < kill_at_ || !anyone_running()) return;
  if (asked_by_ != 0 && failures_.empty())
    kill_reason_ = fmt::format("killed {}, still running {} after the signal (grace_time)", running_ranks(),
                               write_duration(group_.grace_time));
  kill_workers();
}

void Attempt::kill_workers() {
  killed_ = true;
  if (!kill_reason_.empty()) note(kill_reason_);
  for (auto& worker : workers_) worker.send_group(SIGKILL);
}

void Attempt::note(const std::string& message) const {
  if (!hooks_.on_event) return;
  hooks_.on_event({{"event", "note"}, {"rank", group_.first_rank}, {"time", wall_seconds()}, {"message", message}});
}

bool Attempt::failed_already(int rank) const {
  return std::any_of(failures_.begin(), failures_.end(), [&](const Failure& failure) { return failure.rank == rank; });
}

bool Attempt::anyone_running() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const WorkerProcess& worker) { return worker.running(); });
}

std::string Attempt::running_ranks() const {
  std::vector<std::string> ranks;
  for (const auto& worker : workers_)
    if (worker.running()) ranks.push_back(std::to_string(worker.rank()));
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", join(ranks, ", "));
}

Outcome Attempt::outcome() const {
  Outcome result;
  const Failure* cause = first_cause(failures_);
  bool own_failure = cause && !(asked_by_ != 0 && cause->consequence);
  if (own_failure) {
    result.code = cause->code();
    result.status = "failed";
    result.first_cause = cause->message;
    result.failed_rank = cause->rank;
  } else if (all_finished_) {
    result.status = "finished";
  } else {
    bool interrupted = asked_by_ == SIGINT;
    result.code = interrupted ? ExitCode::interrupted : ExitCode::preempted;
    result.status = interrupted ? "interrupted" : "preempted";
    result.first_cause = !kill_reason_.empty() ? kill_reason_
                         : interrupted         ? "stopped by SIGINT (Ctrl-C)"
                         : asked_by_ != 0      ? "stopped by SIGTERM"
                                               : "the workers were asked to stop from outside and exited with code 3";
  }
  return result;
}

bool Attempt::worth_restarting() const {
  const Failure* cause = first_cause(failures_);
  return cause && asked_by_ == 0 && !cause->hopeless();
}

}  // namespace

void place(WorkerGroup& group, const Placement& placement) {
  group.first_rank = placement.rank;
  group.world_size = placement.world_size;
  group.local_size = placement.launched ? 1 : placement.local_size;
  group.local_rank_offset = placement.launched ? placement.local_rank : 0;
  group.local_world_size = placement.local_size;
  group.node_rank = placement.node_rank;
  group.num_nodes = placement.num_nodes;
  group.master_addr = placement.master_addr;
  group.master_port = placement.master_port;
}

Outcome supervise(WorkerGroup group, const SupervisorHooks& hooks) {
  StopSignals signals;
  for (int restarts = 0;; ++restarts) {
    Attempt attempt(group, hooks, signals);
    Outcome outcome = attempt.run();
    outcome.restarts = restarts;
    if (restarts >= group.max_restarts || !attempt.worth_restarting()) return outcome;
    if (hooks.on_restart) hooks.on_restart(group, restarts + 1, outcome.first_cause);
  }
}

}  // namespace runner
