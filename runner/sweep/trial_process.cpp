#include "runner/sweep/trial_process.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace runner::sweep {

TrialProcess::TrialProcess(const TrialCommand& command) : log_(command.log_file) {
  ChildPipe out;
  Descriptor log = log_.take();
  pid_ = start_child({command.program, command.arguments, command.environment, out.write.get(), log.get()});
  out_ = std::move(out.read);
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

void TrialProcess::wait_until_suspended() const {
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
}

}  // namespace runner::sweep
