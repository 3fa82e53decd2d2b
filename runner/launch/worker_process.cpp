// fork and exec of one worker, its pipe, its end.
#include "runner/launch/worker_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "runner/base/error.hpp"
#include "runner/base/exec.hpp"
#include "runner/base/text.hpp"

extern char** environ;

namespace runner {

namespace {

constexpr size_t tail_lines = 10;
constexpr off_t tail_bytes = 4096;

/// How often the kernel's out-of-memory killer struck on this machine (/proc/vmstat); nullopt where that is not to be
/// read.
std::optional<long> oom_kill_count() {
  std::ifstream file("/proc/vmstat");
  std::string name;
  long value = 0;
  while (file >> name >> value)
    if (name == "oom_kill") return value;
  return std::nullopt;
}

/// Ours with `added` on top, without what a supervisor above us told its own worker.
std::vector<std::string> merged_environment(const std::map<std::string, std::string>& added) {
  std::map<std::string, std::string> merged = added;
  for (char** entry = environ; *entry; ++entry) {
    std::string_view text(*entry);
    std::string name(text.substr(0, text.find('=')));
    bool left_over = name == "RUNNER_EVENT_FD" || name == "RUNNER_LISTEN_FD" || name == "RUNNER_SHM_FD" ||
                     name == "RUNNER_NODE_ADDRESS" || name == "RUNNER_CUDA_INDEX";
    if (name.size() < text.size() && !left_over) merged.emplace(name, text.substr(name.size() + 1));
  }
  std::vector<std::string> result;
  for (const auto& [name, value] : merged) result.push_back(name + "=" + value);
  return result;
}

/// Runs in the child between fork and exec: only async-signal-safe calls. Returns only when something failed, with
/// errno.
void become(pid_t parent, char** argv, char** envp, int log, const std::vector<int>& inherited) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // the supervisor died before prctl: nobody would kill us
  int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0 || ::dup2(null, 0) < 0 || ::dup2(log, 1) < 0 || ::dup2(log, 2) < 0) return;
  ::close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);  // whatever other rooms have open without O_CLOEXEC
  for (int fd : inherited)
    if (::fcntl(fd, F_SETFD, 0) != 0) return;
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(argv[0], argv, envp);
}

}  // namespace

WorkerProcess::WorkerProcess(const WorkerCommand& command)
    : rank_(command.rank), reader_(command.rank), log_file_(command.log_file) {
  Descriptor log(::open(log_file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!log.is_open()) throw environment_error("cannot write {}: {}", log_file_, std::strerror(errno));
  log_begin_ = ::lseek(log.get(), 0, SEEK_END);
  oom_kills_before_ = oom_kill_count();
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw environment_error("cannot make a pipe: {}", std::strerror(errno));
  events_ = Descriptor(ends[0]);
  Descriptor write_end(ends[1]);
  ::fcntl(events_.get(), F_SETFL, O_NONBLOCK);
  pid_ = spawn(command, write_end.get(), log.get());
  running_ = true;
}

pid_t WorkerProcess::spawn(const WorkerCommand& command, int event_write_end, int log) {
  std::vector<std::string> arguments{command.program};
  arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
  auto environment = command.environment;
  environment["RUNNER_EVENT_FD"] = std::to_string(event_write_end);
  std::vector<std::string> variables = merged_environment(environment);
  std::vector<int> inherited = command.inherited;
  inherited.push_back(event_write_end);
  std::vector<char*> argv = exec_words(arguments), envp = exec_words(variables);

  int ends[2];  // closed by a successful exec, else carries errno
  if (::pipe2(ends, O_CLOEXEC) != 0) throw environment_error("cannot make a pipe: {}", std::strerror(errno));
  Descriptor failure(ends[0]), failure_write_end(ends[1]);

  sigset_t all, before;  // no handler of ours may run in the child
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  pid_t parent = ::getpid();
  pid_t pid = ::fork();
  if (pid == 0) {
    become(parent, argv.data(), envp.data(), log, inherited);
    int reason = errno;
    [[maybe_unused]] ssize_t n = ::write(failure_write_end.get(), &reason, sizeof reason);
    ::_exit(127);
  }
  int fork_error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) throw environment_error("cannot start a worker: {}", std::strerror(fork_error));

  failure_write_end.close();
  int reason = 0;
  ssize_t n;
  while ((n = ::read(failure.get(), &reason, sizeof reason)) < 0 && errno == EINTR) {
  }
  if (n == sizeof reason) {
    ::waitpid(pid, nullptr, 0);
    throw environment_error("cannot start {}: {}", command.program, std::strerror(reason));
  }
  return pid;
}

WorkerProcess::~WorkerProcess() {
  if (!running_ || pid_ < 0) return;
  send_group(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::vector<nlohmann::json> WorkerProcess::read_events() {
  std::vector<nlohmann::json> events;
  char buffer[65536];
  for (int reads = 0; reads < 16 && events_.is_open(); ++reads) {
    ssize_t n = ::read(events_.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    auto more = n > 0 ? reader_.feed({buffer, static_cast<size_t>(n)}) : reader_.finish();
    events.insert(events.end(), more.begin(), more.end());
    if (n <= 0) events_.close();
  }
  return events;
}

std::optional<WorkerExit> WorkerProcess::poll_exit() {
  if (!running_) return std::nullopt;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return std::nullopt;
  send_group(SIGKILL);  // while the zombie still holds the group's number
  ::waitpid(pid_, nullptr, 0);
  running_ = false;
  WorkerExit exit;
  (info.si_code == CLD_EXITED ? exit.code : exit.signal) = info.si_status;
  auto oom_kills = oom_kill_count();
  exit.oom_suspected = !oom_kills || !oom_kills_before_ || *oom_kills > *oom_kills_before_;
  exit.log_tail = log_tail();
  return exit;
}

void WorkerProcess::send(int signal) {
  if (running_) ::kill(pid_, signal);
}
void WorkerProcess::send_group(int signal) {
  if (running_) ::kill(-pid_, signal);
}

std::string WorkerProcess::log_tail() const {
  Descriptor log(::open(log_file_.c_str(), O_RDONLY | O_CLOEXEC));
  off_t size = log.is_open() ? ::lseek(log.get(), 0, SEEK_END) : 0;
  off_t begin = std::max(log_begin_, size - tail_bytes);
  if (begin >= size) return "";
  std::string text(static_cast<size_t>(size - begin), '\0');
  ssize_t n = ::pread(log.get(), text.data(), text.size(), begin);
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  auto lines = split(trim(text), '\n');
  size_t skip = lines.size() > tail_lines ? lines.size() - tail_lines : 0;
  return join({lines.begin() + static_cast<std::ptrdiff_t>(skip), lines.end()}, "\n");
}

}  // namespace runner
