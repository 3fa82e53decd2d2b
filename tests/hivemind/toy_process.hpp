// Starts toy_peer as a process, and reads what it prints.
#pragma once
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/wait_until.hpp"

namespace runner::testing {

class ToyProcess {
 public:
  explicit ToyProcess(std::vector<std::string> arguments) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error("no pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::fcntl(ends[1], F_SETFL, 0);
      ::dup2(ends[1], 1);
      std::string program = TOY_PEER;
      std::vector<char*> argv{program.data()};
      for (auto& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      ::execv(program.c_str(), argv.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    out_ = ends[0];
  }
  ToyProcess(ToyProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)), out_(std::exchange(other.out_, -1)), text_(std::move(other.text_)) {}
  ~ToyProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    if (out_ >= 0) ::close(out_);
  }
  void signal(int number) const { ::kill(pid_, number); }

  /// The last value that it has printed with this name.
  std::optional<double> value(const std::string& name) {
    char buffer[4096];
    for (ssize_t got = 0; (got = ::read(out_, buffer, sizeof buffer)) > 0;)
      text_.append(buffer, static_cast<size_t>(got));
    std::istringstream lines(text_);
    std::optional<double> last;
    std::string word;
    for (double number = 0; lines >> word >> number;)
      if (word == name) last = number;
    return last;
  }
  bool reaches(const std::string& name, double least, double seconds = 20) {
    return wait_until([&] { return value(name).value_or(-1) >= least; }, seconds);
  }
  std::string port() {
    if (!reaches("port", 1)) throw std::runtime_error("a toy peer does not start");
    return std::to_string(static_cast<int>(*value("port")));
  }
  /// Its exit code; -1 if it has not ended in this time.
  int ends_within(double seconds) {
    int status = 0;
    if (!wait_until([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, seconds)) return -1;
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = 0;
  int out_ = -1;
  std::string text_;
};

}  // namespace runner::testing
