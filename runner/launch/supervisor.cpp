// The supervising loop: runs one Attempt after another until one succeeds or no restarts are left.
#include "runner/launch/supervisor.hpp"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <optional>

#include "runner/base/clock.hpp"
#include "runner/base/text.hpp"
#include "runner/launch/first_cause.hpp"
#include "runner/launch/shared_resources.hpp"
#include "runner/launch/stop_signals.hpp"

namespace runner {

namespace {

using nlohmann::json;

constexpr double tick_seconds = 0.1;
constexpr double failure_grace_seconds = 2;
/// A launcher may forward a Ctrl-C that the terminal has already delivered. Only a later SIGINT counts as a second
/// Ctrl-C.
constexpr double second_interrupt_seconds = 0.5;

/// From the start of the workers to the end of the last one.
class Attempt {
 public:
  Attempt(const WorkerGroup& group, const SupervisorHooks& hooks, StopSignals& signals, Members* members);
  Outcome run();
  /// After run(): whether it failed in a way that a restart may fix, and no stop was requested.
  bool worth_restarting() const;

 private:
  void start_workers();
  void wait() const;
  void handle_signals();
  void handle_interrupt(int signal);
  void suspend();
  void handle_events(Worker& worker);
  void handle_exit(Worker& worker, const WorkerExit& exit);
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
  Members* members_;  ///< null if this supervisor runs all ranks
  std::vector<std::unique_ptr<Worker>> workers_;

  int asked_by_ = 0;         ///< the first SIGINT, SIGTERM or SIGHUP received; 0 = none
  double asked_at_ = 0;      ///< steady seconds
  bool stopping_ = false;    ///< SIGTERM was sent to the workers, after a signal or a failure
  bool killed_ = false;      ///< SIGKILL was sent to the workers
  double kill_at_ = 0;       ///< when to send SIGKILL, in steady seconds; valid if stopping_
  std::string kill_reason_;  ///< the ranks that did not stop in time, for the outcome
  std::vector<Failure> failures_;
  bool all_finished_ = true;  ///< no worker exited with a code other than 0
};

Attempt::Attempt(const WorkerGroup& group, const SupervisorHooks& hooks, StopSignals& signals, Members* members)
    : group_(group), hooks_(hooks), signals_(signals), members_(members) {
  RUNNER_CHECK(group.first_rank == 0, "the supervisor of rank {} follows that of rank 0", group.first_rank);
  start_workers();
}

/// Closes the supervisor's descriptors on return, so that only rank 0 has the listening socket open. If rank 0 dies,
/// other ranks' connections are refused instead of waiting.
void Attempt::start_workers() {
  Handout handout;
  handout.master_port = group_.master_port;
  Descriptor listener = listen_on(group_.master_addr, handout.master_port), shared_memory;
  if (group_.shm_bytes > 0) shared_memory = make_shared_memory(group_.shm_bytes);
  handout.listen_fd = listener.get();
  handout.shm_fd = shared_memory.get();
  if (members_) handout.node_address = members_->own_address();
  workers_ = runner::start_workers(group_, handout);
  if (!members_) return;
  for (auto& worker : members_->start(group_, handout.master_port)) workers_.push_back(std::move(worker));
}

Outcome Attempt::run() {
  double next_tick = 0;
  while (anyone_running()) {
    wait();
    handle_signals();
    for (auto& worker : workers_) handle_events(*worker);
    for (auto& worker : workers_)
      if (auto exit = worker->poll_exit()) {
        handle_events(*worker);  // events written after the last read and before the exit
        handle_exit(*worker, *exit);
      }
    enforce_deadline();
    if (hooks_.on_tick && steady_seconds() >= next_tick) {
      hooks_.on_tick();
      next_tick = steady_seconds() + tick_seconds;
    }
  }
  return outcome();
}

/// Waits for a signal, an event or the next tick. When a worker ends, its pipe is closed, which also ends the wait.
void Attempt::wait() const {
  std::vector<pollfd> watched{{signals_.fd(), POLLIN, 0}};
  for (const auto& worker : workers_)
    if (worker->event_fd() >= 0) watched.push_back({worker->event_fd(), POLLIN, 0});
  ::poll(watched.data(), watched.size(), static_cast<int>(tick_seconds * 1000));
}

void Attempt::handle_signals() {
  for (int signal : signals_.take()) {
    if (signal == SIGTSTP)
      suspend();
    else
      handle_interrupt(signal);
  }
  if (!members_) return;
  for (int signal : members_->take_signals()) handle_interrupt(signal);
}

void Attempt::handle_interrupt(int signal) {
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
  if (stopping_) return;  // a failure was first and remains the cause, but there is no restart
  stopping_ = true;
  kill_at_ = now + static_cast<double>(group_.grace_time.count());
  for (auto& worker : workers_) worker->send(SIGTERM);
  note(fmt::format("{}: stopping {} with a checkpoint within {} (Ctrl-C {}kills at once)", signal_name(signal),
                   running_ranks(), write_duration(group_.grace_time), signal == SIGINT ? "again " : ""));
}

/// Handles Ctrl-Z. The workers are in other process groups, so the terminal has not stopped them.
void Attempt::suspend() {
  for (auto& worker : workers_) worker->send_group(SIGSTOP);
  double stopped_at = steady_seconds();
  ::raise(SIGSTOP);
  double pause = steady_seconds() - stopped_at;
  kill_at_ += pause;
  asked_at_ += pause;
  for (auto& worker : workers_) worker->send_group(SIGCONT);
}

void Attempt::handle_events(Worker& worker) {
  for (const json& event : worker.read_events()) {
    if (event["event"] == "settle") {
      hooks_.on_settle ? hooks_.on_settle(worker.answer()) : worker.answer()();
      continue;
    }
    bool failed = event["event"] == "failed";
    if (failed) failures_.push_back(failure_from_event(event, steady_seconds()));
    if (hooks_.on_event) hooks_.on_event(event);
    if (failed) stop_for_failure();
  }
}

void Attempt::handle_exit(Worker& worker, const WorkerExit& exit) {
  if (exit.signal == 0 && exit.code == static_cast<int>(ExitCode::done)) return;
  all_finished_ = false;
  if ((exit.signal == 0 && exit.code == static_cast<int>(ExitCode::preempted)) || failed_already(worker.rank())) return;
  // Slurm signals every process of a step. This worker had no handler yet, and the supervisor's SIGTERM arrives soon.
  if (exit.signal == SIGTERM && !stopping_) handle_interrupt(SIGTERM);
  if ((stopping_ && exit.signal == SIGTERM) || (killed_ && exit.signal == SIGKILL)) return;

  Failure failure;
  failure.seen = steady_seconds();
  failure.rank = worker.rank();
  failure.kind = "crash";
  failure.consequence = stopping_ && exit.signal == 0 && exit.gone_with.empty();
  failure.message = describe_exit(worker.rank(), exit, worker.log_file());
  failures_.push_back(failure);
  stop_for_failure();
}

/// The other ranks cannot reach a step boundary any more, so they get SIGTERM and a short deadline. Ranks that reported
/// a failure are already ending and get only the deadline.
void Attempt::stop_for_failure() {
  double deadline = steady_seconds() + failure_grace_seconds;
  kill_at_ = stopping_ ? std::min(kill_at_, deadline) : deadline;
  if (stopping_) return;
  stopping_ = true;
  for (auto& worker : workers_)
    if (!failed_already(worker->rank())) worker->send(SIGTERM);
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
  for (auto& worker : workers_) worker->send_group(SIGKILL);
}

void Attempt::note(const std::string& message) const {
  if (!hooks_.on_event) return;
  hooks_.on_event({{"event", "note"}, {"rank", group_.first_rank}, {"time", wall_seconds()}, {"message", message}});
}

bool Attempt::failed_already(int rank) const {
  return std::any_of(failures_.begin(), failures_.end(), [&](const Failure& failure) { return failure.rank == rank; });
}

bool Attempt::anyone_running() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const auto& worker) { return worker->running(); });
}

std::string Attempt::running_ranks() const {
  std::vector<int> ranks;
  for (const auto& worker : workers_)
    if (worker->running()) ranks.push_back(worker->rank());
  std::ranges::sort(ranks);  // members joined in any order
  return describe_ranks(ranks);
}

Outcome Attempt::outcome() const {
  Outcome result;
  const Failure* cause = first_cause(failures_);
  bool own_failure = cause && !(asked_by_ != 0 && cause->consequence);
  if (own_failure) {
    result.code = cause->code();
    result.status = "failed";
    result.first_cause = cause->message;
    result.kind = cause->kind;
  } else if (all_finished_) {
    result.status = "finished";
  } else {
    bool interrupted = asked_by_ == SIGINT;
    result.code = interrupted ? ExitCode::interrupted : ExitCode::preempted;
    result.status = interrupted ? "interrupted" : "preempted";
    result.first_cause = !kill_reason_.empty() ? kill_reason_
                         : asked_by_ != 0
                             ? fmt::format("stopped by {}{}", signal_name(asked_by_), interrupted ? " (Ctrl-C)" : "")
                             : "the workers received a stop signal from outside and exited with code 3";
  }
  return result;
}

bool Attempt::worth_restarting() const {
  const Failure* cause = first_cause(failures_);
  return cause && asked_by_ == 0 && !cause->hopeless() && !(members_ && members_->anyone_gone());
}

}  // namespace

Outcome supervise(WorkerGroup group, const SupervisorHooks& hooks, Members* members) {
  std::optional<StopSignals> own;
  StopSignals& signals = hooks.signals ? *hooks.signals : own.emplace();
  for (int restarts = 0;; ++restarts) {
    Attempt attempt(group, hooks, signals, members);
    Outcome outcome = attempt.run();
    outcome.restarts = restarts;
    if (restarts >= group.max_restarts || !attempt.worth_restarting()) return outcome;
    if (hooks.on_restart) hooks.on_restart(group, restarts + 1, outcome.first_cause);
  }
}

}  // namespace runner
