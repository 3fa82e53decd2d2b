// The supervising loop: runs one Attempt after another until one succeeds or no restarts are left.
#include "runner/launch/supervisor.hpp"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

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
constexpr double no_deadline = std::numeric_limits<double>::infinity();
/// A launcher may forward a Ctrl-C that the terminal has already delivered. Only a later SIGINT counts as a second
/// Ctrl-C.
constexpr double second_interrupt_seconds = 0.5;

/// From the start of the workers to the end of the last one.
class Attempt {
 public:
  Attempt(const WorkerGroup& group, const SupervisorHooks& hooks, StopSignals& signals, Members* members,
          bool is_restart);
  Outcome run();
  /// After run(): whether it failed in a way that a restart may fix, and no stop was requested.
  bool worth_restarting() const;

 private:
  void start_workers();
  void wait() const;
  void handle_signals();
  void handle_interrupt(int signal);
  void regroup_if_nodes_change();
  double end_of_grace() const;
  void suspend();
  void handle_events(Worker& worker);
  void report(const json& event) const;
  void handle_exit(Worker& worker, const WorkerExit& exit);
  void end_those_that_wait_for(int rank);
  void stop_for_failure();
  void enforce_deadline();
  void kill_workers();
  void note(const std::string& message) const;
  bool failed_already(int rank) const;
  bool anyone_running() const;
  bool failed_at_start() const { return !is_restart_ && std::ssize(ready_) < group_.world_size; }
  std::optional<std::string> why_regroup(const Failure* cause) const;
  std::string running_ranks() const;
  Outcome outcome() const;

  const WorkerGroup& group_;
  const SupervisorHooks& hooks_;
  StopSignals& signals_;
  Members* members_;  ///< null if this supervisor runs all ranks
  bool is_restart_;
  std::vector<std::unique_ptr<Worker>> workers_;

  int asked_by_ = 0;            ///< the first SIGINT, SIGTERM or SIGHUP received; 0 = none
  double asked_at_ = 0;         ///< steady seconds
  bool stopping_ = false;       ///< SIGTERM was sent to the workers, after a signal or a failure
  bool killed_ = false;         ///< SIGKILL was sent to the workers
  double kill_at_ = 0;          ///< when to send SIGKILL, in steady seconds, or no_deadline; valid if stopping_
  std::string changed_;         ///< why the workers were asked to stop for other nodes; "" = they were not
  std::optional<int> missing_;  ///< a rank that ended at once when it was asked to stop
  std::string kill_reason_;     ///< the ranks that did not stop in time, for the outcome
  std::vector<Failure> failures_;
  std::set<int> ready_;       ///< ranks that have sent `ready`
  bool all_finished_ = true;  ///< no worker exited with a code other than 0
};

Attempt::Attempt(const WorkerGroup& group, const SupervisorHooks& hooks, StopSignals& signals, Members* members,
                 bool is_restart)
    : group_(group), hooks_(hooks), signals_(signals), members_(members), is_restart_(is_restart) {
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
    if (steady_seconds() < next_tick) continue;
    next_tick = steady_seconds() + tick_seconds;
    if (hooks_.on_tick) hooks_.on_tick();
    regroup_if_nodes_change();
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
  // A failure that was first remains the cause, but there is no restart.
  if (stopping_ && (changed_.empty() || !failures_.empty())) return;
  kill_at_ = stopping_ ? std::min(kill_at_, end_of_grace()) : end_of_grace();
  if (!std::exchange(stopping_, true))
    for (auto& worker : workers_) worker->send(SIGTERM);
  note(fmt::format("{}: stopping {} with a checkpoint within {} (Ctrl-C {}kills at once)", signal_name(signal),
                   running_ranks(), write_duration(group_.grace_time), signal == SIGINT ? "again " : ""));
}

/// Stops the workers with a checkpoint, so that the next attempt has the nodes that are there then. A node may also leave while they stop
/// for one that joined.
void Attempt::regroup_if_nodes_change() {
  if (!hooks_.nodes_changed || (stopping_ && kill_at_ < no_deadline)) return;
  const NodeChange change = hooks_.nodes_changed();
  if (change.why.empty() || (stopping_ && !change.leaving)) return;
  kill_at_ = change.leaving ? end_of_grace() : no_deadline;
  if (!std::exchange(stopping_, true)) {
    changed_ = change.why;
    for (auto& worker : workers_) worker->send(SIGTERM);
  }
  note(fmt::format("{}: stopping {} with a checkpoint {}, to go on with the nodes that are there", change.why,
                   running_ranks(),
                   change.leaving ? "within " + write_duration(group_.grace_time) : "at the next step boundary"));
}

/// When workers that are asked now to stop with a checkpoint are killed.
double Attempt::end_of_grace() const { return steady_seconds() + static_cast<double>(group_.grace_time.count()); }

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
    if (event["event"] == "ready") ready_.insert(event["rank"].get<int>());
    if (failed) failures_.push_back(failure_from_event(event, steady_seconds()));
    report(event);
    if (failed) stop_for_failure();
  }
}

/// An event from another node may lack fields that a recorder reads. That does not end the run.
void Attempt::report(const json& event) const {
  if (!hooks_.on_event) return;
  try {
    hooks_.on_event(event);
  } catch (const json::exception& error) {
    if (event["rank"] < group_.first_rank + group_.local_size) throw;
    note(fmt::format("rank {} has sent an event that cannot be recorded: {}", event["rank"].get<int>(), error.what()));
  }
}

void Attempt::handle_exit(Worker& worker, const WorkerExit& exit) {
  if (exit.signal == 0 && exit.code == static_cast<int>(ExitCode::done)) return;
  all_finished_ = false;
  if ((exit.signal == 0 && exit.code == static_cast<int>(ExitCode::preempted)) || failed_already(worker.rank())) return;
  // Slurm signals every process of a step. This worker had no handler yet, and the supervisor's SIGTERM arrives soon. On another node
  // of an elastic run, it means that the node leaves.
  const bool may_leave = hooks_.nodes_changed && worker.rank() >= group_.first_rank + group_.local_size;
  if (exit.signal == SIGTERM && !stopping_ && !may_leave) handle_interrupt(SIGTERM);
  if (stopping_ && exit.signal == SIGTERM) return end_those_that_wait_for(worker.rank());
  if (killed_ && exit.signal == SIGKILL) return;

  Failure failure;
  failure.seen = steady_seconds();
  failure.rank = worker.rank();
  failure.kind = "crash";
  const bool ended_itself = exit.signal == 0 && exit.gone_with.empty();
  failure.consequence = stopping_ ? ended_itself : may_leave && exit.signal == SIGTERM;
  failure.node_lost = !exit.gone_with.empty();
  failure.message = describe_exit(worker.rank(), exit, worker.log_file());
  failures_.push_back(failure);
  stop_for_failure();
}

/// A rank that was still starting has no handler, so it ended at once when it was asked to stop. The others wait for
/// it, and have made no step that they could save. So they are not given the grace time.
void Attempt::end_those_that_wait_for(int rank) {
  if (killed_ || !anyone_running() || ready_.contains(rank)) return;
  kill_at_ = std::min(kill_at_, steady_seconds() + failure_grace_seconds);
  missing_ = rank;
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
  if (failures_.empty() && missing_)
    kill_reason_ =
        fmt::format("killed {}, waiting for rank {}, which was stopped while it started", running_ranks(), *missing_);
  else if (failures_.empty())
    kill_reason_ =
        fmt::format("killed {}, still running {} after {}", running_ranks(), write_duration(group_.grace_time),
                    asked_by_ != 0 ? "the signal (grace_time)"
                                   : "they were asked to stop (grace_time); the steps since the newest "
                                     "checkpoint are repeated");
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

/// The reason for which an elastic run goes on with other nodes after this attempt; empty if it does not.
std::optional<std::string> Attempt::why_regroup(const Failure* cause) const {
  if (!hooks_.nodes_changed || asked_by_ != 0 || all_finished_) return std::nullopt;
  if (cause && (cause->node_lost || (cause->consequence && members_ && members_->anyone_gone()))) return cause->message;
  if (cause && !cause->consequence) return std::nullopt;
  if (!changed_.empty()) return changed_;
  // A node that leaves may have stopped its workers itself.
  const NodeChange change = hooks_.nodes_changed();
  if (change.why.empty() || (cause && !change.leaving)) return std::nullopt;
  return change.why;
}

/// The outcome of an attempt of an elastic run after which other nodes go on.
Outcome go_on_after(std::string why) {
  Outcome result{ExitCode::preempted, "preempted", std::move(why)};
  result.regroup = true;
  return result;
}

Outcome Attempt::outcome() const {
  Outcome result;
  const Failure* cause = first_cause(failures_);
  if (auto why = why_regroup(cause)) return go_on_after(std::move(*why));
  bool own_failure = cause && !(asked_by_ != 0 && cause->consequence);
  if (own_failure) {
    result.code = cause->code();
    result.status = "failed";
    result.first_cause = cause->message;
    result.kind = cause->kind;
    if (hooks_.end_newcomer && asked_by_ == 0 && failed_at_start() && hooks_.end_newcomer(cause->rank, result))
      return go_on_after(cause->message);
  } else if (all_finished_) {
    result.status = "finished";
  } else {
    const bool on_page = asked_by_ == SIGTERM && signals_.from_page();
    const bool interrupted = asked_by_ == SIGINT || on_page;
    result.code = interrupted ? ExitCode::interrupted : ExitCode::preempted;
    result.status = interrupted ? "interrupted" : "preempted";
    result.first_cause = !kill_reason_.empty() ? kill_reason_
                         : on_page             ? "stopped on the web page"
                         : asked_by_ != 0
                             ? fmt::format("stopped by {}{}", signal_name(asked_by_), interrupted ? " (Ctrl-C)" : "")
                             : "the workers received a stop signal from outside and exited with code 3";
  }
  return result;
}

bool Attempt::worth_restarting() const {
  const Failure* cause = first_cause(failures_);
  const bool gone = members_ && members_->anyone_gone();
  return cause && asked_by_ == 0 && !cause->hopeless() && (!gone || hooks_.nodes_changed);
}

}  // namespace

Outcome supervise(WorkerGroup group, const SupervisorHooks& hooks, Members* members) {
  std::optional<StopSignals> own;
  StopSignals& signals = hooks.signals ? *hooks.signals : own.emplace();
  for (int restarts = 0;; ++restarts) {
    Attempt attempt(group, hooks, signals, members, /*is_restart=*/restarts > 0);
    Outcome outcome = attempt.run();
    outcome.restarts = restarts;
    if (outcome.regroup || restarts >= group.max_restarts || !attempt.worth_restarting()) return outcome;
    if (members && members->anyone_gone()) {  // in an elastic run
      outcome.regroup = true;
      outcome.restarts = restarts + 1;
      return outcome;
    }
    if (hooks.on_restart) hooks.on_restart(group, restarts + 1, outcome.first_cause);
  }
}

}  // namespace runner
