// Starts a worker process, reads its events and reaps it.
#include "runner/launch/worker_process.hpp"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/process_stat.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

constexpr size_t tail_lines = 10;

/// The number of kills by the kernel's out-of-memory killer on this machine (/proc/vmstat); empty if it cannot be read.
std::optional<long> oom_kill_count() {
  std::ifstream file("/proc/vmstat");
  std::string name;
  long value = 0;
  while (file >> name >> value)
    if (name == "oom_kill") return value;
  return std::nullopt;
}

}  // namespace

WorkerProcess::WorkerProcess(const WorkerCommand& command)
    : rank_(command.rank),
      reader_(command.rank, command.ranks),
      log_(command.log_file, command.log_heading),
      log_bytes_max_(command.log_bytes_max),
      stopped_limit_(std::chrono::duration<double>(command.stopped_limit).count()) {
  oom_kills_before_ = oom_kill_count();
  ChildPipe events;
  settled_ = std::make_shared<Descriptor>(::eventfd(0, EFD_CLOEXEC));
  if (!settled_->is_open()) throw environment_error("cannot make an eventfd: {}", std::strerror(errno));
  Descriptor log = log_.take();
  ChildCommand child{command.program, command.arguments, command.environment, log.get(), log.get(), command.inherited};
  child.environment["RUNNER_EVENT_FD"] = std::to_string(events.write.get());
  child.environment["RUNNER_SETTLED_FD"] = std::to_string(settled_->get());
  child.inherited.insert(child.inherited.end(), {events.write.get(), settled_->get()});
  pid_ = start_child(child);
  events_ = std::move(events.read);
  running_ = true;
}

WorkerProcess::~WorkerProcess() {
  if (!running_ || pid_ < 0) return;
  send_group(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::vector<nlohmann::json> WorkerProcess::read_events() {
  std::vector<nlohmann::json> events;
  char buffer[65536];
  // A running worker is read in portions, so that the others have their turn; an ended one is read to the end.
  for (int reads = 0; (reads < 16 || !running_) && events_.is_open(); ++reads) {
    ssize_t n = ::read(events_.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    auto more = n > 0 ? reader_.feed({buffer, static_cast<size_t>(n)}) : reader_.finish();
    events.insert(events.end(), more.begin(), more.end());
    if (n <= 0) events_.close();
  }
  if (stopped_too_long())
    events.push_back({{"event", "failed"},
                      {"rank", rank_},
                      {"time", wall_seconds()},
                      {"kind", "error"},
                      {"message", fmt::format("the process {} has been stopped for {} (by SIGSTOP or a similar signal)",
                                              pid_, format_duration(stopped_for_))}});
  return events;
}

/// Looks once a second. The time in which this process was stopped, too, does not count.
bool WorkerProcess::stopped_too_long() {
  constexpr double look_every = 1, counted_max = 2;
  const double now = steady_seconds(), elapsed = now - looked_at_;
  if (!running_ || elapsed < std::min(look_every, stopped_limit_ / 2)) return false;
  looked_at_ = now;
  const bool reported = stopped_for_ >= stopped_limit_;
  const auto stat = read_process_stat(pid_);
  if (!stat || stat->state != 'T') {  // 't' is a debugger's stop
    stopped_for_ = 0;
    return false;
  }
  stopped_for_ += std::min(elapsed, counted_max);
  return !reported && stopped_for_ >= stopped_limit_;
}

std::function<void()> WorkerProcess::answer() {
  return [settled = settled_] {
    const uint64_t one = 1;
    [[maybe_unused]] ssize_t n = ::write(settled->get(), &one, sizeof one);
  };
}

std::optional<WorkerExit> WorkerProcess::poll_exit() {
  if (!running_) return std::nullopt;
  log_.bound(log_bytes_max_);
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return std::nullopt;
  send_group(SIGKILL);  // before the worker is reaped: until then, its group id cannot be reused
  ::waitpid(pid_, nullptr, 0);
  running_ = false;
  log_.bound(log_bytes_max_);
  WorkerExit exit;
  (info.si_code == CLD_EXITED ? exit.code : exit.signal) = info.si_status;
  auto oom_kills = oom_kill_count();
  exit.oom_suspected = !oom_kills || !oom_kills_before_ || *oom_kills > *oom_kills_before_;
  exit.log_tail = log_.tail(tail_lines);
  return exit;
}

void WorkerProcess::send(int signal) {
  if (running_) ::kill(pid_, signal);
}
void WorkerProcess::send_group(int signal) {
  if (running_) ::kill(-pid_, signal);
}

}  // namespace runner
