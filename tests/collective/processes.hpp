// Ranks as processes. Starts the test's rank program once per rank, with the sockets and memory that a supervisor
// passes.
#pragma once
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "runner/launch/shared_resources.hpp"
#include "strategies/collective/shm_layout.hpp"

namespace runner::testing {

class RankProcesses {
 public:
  /// `started`: how many of the `size` ranks to start; -1 for all. Without BACKEND in `environment`, the backend is
  /// shared memory.
  RankProcesses(int size, const std::string& mode, std::map<std::string, std::string> environment = {},
                int started = -1)
      : ranks_(static_cast<size_t>(started < 0 ? size : started)) {
    Descriptor listener = listen_on("127.0.0.1", port_), memory;
    environment.try_emplace("BACKEND", "shm");
    if (environment["BACKEND"] == "shm") memory = make_shared_memory(static_cast<int64_t>(shm_segment_bytes(size)));
    environment["WORLD_SIZE"] = environment["LOCAL_WORLD_SIZE"] = std::to_string(size);
    environment["MASTER_ADDR"] = "127.0.0.1";
    environment["MASTER_PORT"] = std::to_string(port_);
    environment["OMP_NUM_THREADS"] = "1";
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      environment["RANK"] = environment["LOCAL_RANK"] = std::to_string(rank);
      environment["RUNNER_LISTEN_FD"] = rank == 0 ? std::to_string(listener.get()) : "-1";
      environment["RUNNER_SHM_FD"] = std::to_string(memory.get());
      start(ranks_[rank], mode, environment, {rank == 0 ? listener.get() : -1, memory.get()});
    }
  }
  ~RankProcesses() {
    for (auto& rank : ranks_) {
      if (!rank.reaped) ::kill(rank.pid, SIGKILL), ::waitpid(rank.pid, nullptr, 0);
      ::close(rank.out);
    }
  }
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  int port() const { return port_; }
  pid_t pid(size_t rank) const { return ranks_[rank].pid; }
  /// Reads until the rank has printed the line `text`. Returns false if the rank ends, or prints nothing for 30 s,
  /// before that.
  bool said(size_t rank, const std::string& text) {
    auto& out = ranks_[rank].text;
    while (("\n" + out).find("\n" + text + "\n") == std::string::npos)
      if (!read(ranks_[rank])) return false;
    return true;
  }
  void kill(size_t rank) { ::kill(ranks_[rank].pid, SIGKILL); }
  void stop(size_t rank) { ::kill(ranks_[rank].pid, SIGSTOP); }
  /// All output of the rank until it ends.
  std::string finish(size_t rank) {
    while (read(ranks_[rank])) continue;
    int status = 0;
    if (!ranks_[rank].reaped) ::waitpid(ranks_[rank].pid, &status, 0);
    ranks_[rank].reaped = true;
    ranks_[rank].code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return ranks_[rank].text;
  }
  int code(size_t rank) const { return ranks_[rank].code; }

 private:
  struct Rank {
    pid_t pid = 0;
    int out = -1;
    std::string text;
    bool reaped = false;
    int code = 0;
  };

  static void start(Rank& rank, const std::string& mode, const std::map<std::string, std::string>& environment,
                    const std::vector<int>& passed) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    std::vector<std::string> variables;
    for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
    for (char** known = environ; *known; ++known) variables.push_back(*known);
    std::vector<char*> pointers;
    for (auto& variable : variables) pointers.push_back(variable.data());
    pointers.push_back(nullptr);
    std::string program = RANK_PROGRAM, argument = mode;
    char* argv[] = {program.data(), argument.data(), nullptr};
    rank.pid = ::fork();
    if (rank.pid == 0) {
      ::dup2(ends[1], 1);
      for (int fd : passed)
        if (fd >= 0) ::fcntl(fd, F_SETFD, 0);
      ::execve(program.c_str(), argv, pointers.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    rank.out = ends[0];
  }

  /// Waits up to 30 s for more output. Returns false at the end of the output.
  static bool read(Rank& rank) {
    pollfd ready{rank.out, POLLIN, 0};
    if (::poll(&ready, 1, 30'000) <= 0) return false;
    char buffer[4096];
    ssize_t count = ::read(rank.out, buffer, sizeof buffer);
    if (count > 0) rank.text.append(buffer, static_cast<size_t>(count));
    return count > 0;
  }

  int port_ = 0;
  std::vector<Rank> ranks_;
};

}  // namespace runner::testing
