#include "runner/base/child_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "runner/base/blocked_signals.hpp"
#include "runner/base/error.hpp"
#include "runner/base/exec.hpp"
#include "runner/base/log_heading.hpp"
#include "runner/base/text.hpp"

extern char** environ;

namespace runner {

namespace {

std::vector<std::string> merged_environment(std::map<std::string, std::string> merged) {
  for (char** entry = environ; *entry; ++entry) {
    std::string_view text(*entry);
    std::string name(text.substr(0, text.find('=')));
    bool left_over = name == "RUNNER_EVENT_FD" || name == "RUNNER_SETTLED_FD" || name == "RUNNER_LISTEN_FD" ||
                     name == "RUNNER_SHM_FD" || name == "RUNNER_NODE_ADDRESS" || name == "RUNNER_DEVICE_INDEX" ||
                     name == "RUNNER_RANKS_OF_WORKER";
    if (name.size() < text.size() && !left_over) merged.emplace(name, text.substr(name.size() + 1));
  }
  std::vector<std::string> result;
  for (const auto& [name, value] : merged) result.push_back(name + "=" + value);
  return result;
}

/// Runs in the child between fork and exec: only async-signal-safe calls. Returns only when something failed, with
/// errno.
void become(pid_t parent, char** argv, char** envp, const ChildCommand& command) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // the parent died before prctl: nobody would kill us
  const int in = command.in >= 0 ? command.in : ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (in < 0 || ::dup2(in, 0) < 0 || ::dup2(command.out, 1) < 0 || ::dup2(command.log, 2) < 0) return;
  ::close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);  // descriptors that other code opened without O_CLOEXEC
  for (int fd : command.inherited)
    if (::fcntl(fd, F_SETFD, 0) != 0) return;
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(argv[0], argv, envp);
}

void make_pipe(Descriptor& read, Descriptor& write) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw environment_error("cannot make a pipe: {}", std::strerror(errno));
  read = Descriptor(ends[0]);
  write = Descriptor(ends[1]);
}

/// At most `size` bytes of a file from `begin` on; fewer where it ends.
std::string read_part(const Descriptor& file, off_t begin, off_t size) {
  std::string text(static_cast<size_t>(std::max<off_t>(0, size)), '\0');
  const ssize_t n = ::pread(file.get(), text.data(), text.size(), begin);
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

/// The last heading of an attempt that begins behind a line break in [begin, end), with its own line break; empty: there is none.
std::string last_heading(const Descriptor& log, off_t begin, off_t end) {
  constexpr off_t piece_bytes = 1 << 20, heading_bytes_max = 200;
  const std::string mark = "\n" + std::string(log_heading_begin);
  std::string found;
  for (off_t at = begin; at < end; at += piece_bytes) {
    const std::string piece = read_part(log, at, std::min(piece_bytes + heading_bytes_max, end - at));
    for (size_t line = piece.find(mark); line != std::string::npos; line = piece.find(mark, line + 1)) {
      const size_t line_end = piece.find('\n', line + 1);
      if (line_end == std::string::npos) break;
      if (const auto text = piece.substr(line + 1, line_end - line - 1); attempt_of_heading(text)) found = text + "\n";
    }
  }
  return found;
}

}  // namespace

pid_t start_child(const ChildCommand& command) {
  std::vector<std::string> arguments{command.program};
  arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
  std::vector<std::string> variables = merged_environment(command.environment);
  std::vector<char*> argv = exec_words(arguments), envp = exec_words(variables);
  Descriptor failure, failure_write_end;  // closed by a successful exec, otherwise carries errno
  make_pipe(failure, failure_write_end);

  pid_t parent = ::getpid();
  std::optional<BlockedSignals> blocked(std::in_place);  // none of our signal handlers may run in the child
  pid_t pid = ::fork();
  if (pid == 0) {
    become(parent, argv.data(), envp.data(), command);
    int reason = errno;
    [[maybe_unused]] ssize_t n = ::write(failure_write_end.get(), &reason, sizeof reason);
    ::_exit(127);
  }
  blocked.reset();
  if (pid < 0) throw environment_error("cannot start {}: {}", command.program, std::strerror(errno));

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

ChildLog::ChildLog(std::string path, const std::string& heading)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (!descriptor_.is_open()) throw environment_error("cannot write {}: {}", path_, std::strerror(errno));
  const off_t size = ::lseek(descriptor_.get(), 0, SEEK_END);
  const bool within_line = size > 0 && read_part(descriptor_, size - 1, 1) != "\n";
  const std::string line = (within_line ? "\n" : "") + heading + "\n";
  if (!heading.empty() && ::write(descriptor_.get(), line.data(), line.size()) < 0)
    throw environment_error("cannot write {}: {}", path_, std::strerror(errno));
  begin_ = ::lseek(descriptor_.get(), 0, SEEK_END);
}

void ChildLog::bound(int64_t bytes_max) {
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0 || status.st_size <= bytes_max) return;
  const Descriptor log(::open(path_.c_str(), O_RDWR | O_APPEND | O_CLOEXEC));
  if (!log.is_open()) return;
  std::string head = read_part(log, 0, bytes_max / 8);
  if (const auto end = head.rfind('\n'); end != std::string::npos) head.resize(end + 1);
  const auto head_size = static_cast<off_t>(head.size());
  if (::fstat(log.get(), &status) != 0) return;  // the child has written more
  std::string tail = read_part(log, status.st_size - bytes_max / 8, bytes_max / 8);
  if (const auto begin = tail.find('\n'); begin != std::string::npos) tail.erase(0, begin + 1);
  const off_t tail_begin = status.st_size - static_cast<off_t>(tail.size());
  removed_ += tail_begin - head_size;
  // The line break before the removed part belongs to it, because a heading begins behind one.
  const std::string heading = last_heading(log, std::max<off_t>(0, head_size - 1), tail_begin);
  if (::ftruncate(log.get(), head_size) != 0) return;
  const std::string rest =
      fmt::format("{}---- runner removed {} of output here, because a log has at most {} ----\n{}{}",
                  head.ends_with('\n') ? "" : "\n", format_bytes(removed_), format_bytes(bytes_max), heading, tail);
  [[maybe_unused]] const ssize_t n = ::write(log.get(), rest.data(), rest.size());
  begin_ = std::min(begin_, head_size);
}

std::string ChildLog::tail(size_t lines_max) const {
  constexpr off_t bytes_max = 4096;
  Descriptor log(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  off_t size = log.is_open() ? ::lseek(log.get(), 0, SEEK_END) : 0;
  off_t begin = std::max(begin_, size - bytes_max);
  if (begin >= size) return "";
  auto lines = split(trim(read_part(log, begin, size - begin)), '\n');
  size_t skip = lines.size() > lines_max ? lines.size() - lines_max : 0;
  return join({lines.begin() + static_cast<std::ptrdiff_t>(skip), lines.end()}, "\n");
}

ChildPipe::ChildPipe() {
  make_pipe(read, write);
  ::fcntl(read.get(), F_SETFL, O_NONBLOCK);
}

}  // namespace runner
