#include "runner/sweep/trial_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runner/base/error.hpp"
#include "runner/base/exec.hpp"
#include "runner/base/text.hpp"

extern char** environ;

namespace runner::sweep {

namespace {

constexpr off_t tail_bytes = 4096;
constexpr size_t tail_lines = 6;

std::vector<std::string> merged_environment(std::map<std::string, std::string> added) {
  for (char** entry = environ; *entry; ++entry) {
    std::string_view text(*entry);
    std::string name(text.substr(0, text.find('=')));
    if (name.size() < text.size()) added.emplace(name, text.substr(name.size() + 1));
  }
  std::vector<std::string> result;
  for (const auto& [name, value] : added) result.push_back(name + "=" + value);
  return result;
}

/// Between fork and exec: only async-signal-safe calls. Returns only when something failed.
void become(pid_t parent, char** argv, char** envp, int out, int log) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // the sweep died before prctl: nobody would kill us
  int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0 || ::dup2(null, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(log, 2) < 0) return;
  ::close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(argv[0], argv, envp);
}

}  // namespace

TrialProcess::TrialProcess(const TrialCommand& command) : log_file_(command.log_file) {
  Descriptor log(::open(log_file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!log.is_open()) throw environment_error("cannot write {}: {}", log_file_, std::strerror(errno));
  log_begin_ = ::lseek(log.get(), 0, SEEK_END);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw environment_error("cannot make a pipe: {}", std::strerror(errno));
  out_ = Descriptor(ends[0]);
  Descriptor write_end(ends[1]);
  ::fcntl(out_.get(), F_SETFL, O_NONBLOCK);

  std::vector<std::string> arguments{command.program};
  arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
  std::vector<std::string> variables = merged_environment(command.environment);
  std::vector<char*> argv = exec_words(arguments), envp = exec_words(variables);
  sigset_t all, before;  // no handler of ours may run in the child
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    become(parent, argv.data(), envp.data(), write_end.get(), log.get());
    ::_exit(127);
  }
  int fork_error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid_ < 0) throw environment_error("cannot start a trial: {}", std::strerror(fork_error));
}

TrialProcess::~TrialProcess() {
  if (pid_ < 0) return;
  kill();
  ::waitpid(pid_, nullptr, 0);
}

std::vector<nlohmann::json> TrialProcess::read() {
  std::vector<nlohmann::json> objects;
  auto take = [&](const std::string& line) {
    if (auto object = from_line(line)) objects.push_back(std::move(*object));
  };
  char buffer[16384];
  while (out_.is_open()) {
    ssize_t n = ::read(out_.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n > 0) {
      for (const auto& line : lines_.feed({buffer, static_cast<size_t>(n)})) take(line);
      continue;
    }
    take(lines_.finish());
    out_.close();
  }
  return objects;
}

std::optional<TrialProcess::Exit> TrialProcess::wait() {
  if (pid_ < 0 || out_.is_open()) return std::nullopt;
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return WIFEXITED(status) ? Exit{WEXITSTATUS(status), 0} : Exit{0, WTERMSIG(status)};
}

void TrialProcess::send(int signal) const {
  if (pid_ > 0) ::kill(pid_, signal);
}

void TrialProcess::stop() const { send(SIGTERM); }
void TrialProcess::kill() const { send(SIGKILL); }

std::string TrialProcess::log_tail() const {
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

}  // namespace runner::sweep
