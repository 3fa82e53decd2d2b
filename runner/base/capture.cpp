#include "runner/base/capture.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "runner/base/clock.hpp"
#include "runner/base/descriptor.hpp"
#include "runner/base/exec.hpp"

namespace runner {

namespace {

/// `added` and the variables of this process that it does not replace.
std::vector<std::string> extended_environment(std::vector<std::string> added) {
  const auto replacements = added;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text(*entry), name = text.substr(0, text.find('=') + 1);
    if (std::ranges::none_of(replacements, [&](const std::string& other) { return other.starts_with(name); }))
      added.emplace_back(text);
  }
  return added;
}

/// Starts the program with `out` as its stdout. Returns 0 or an errno.
int spawn(pid_t& child, std::vector<std::string>& command, const CaptureOptions& options, int out) {
  auto variables = extended_environment(options.environment);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  if (options.with_stderr)
    posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
  else
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);  // this thread may block signals
  posix_spawnattr_setpgroup(&attributes, 0);       // so that what the program has started is killed with it
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  const int error = ::posix_spawnp(&child, command[0].c_str(), &actions, &attributes, exec_words(command).data(),
                                   exec_words(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

/// Reads until the end of the pipe. Sets `too_late` at the deadline or when it has to stop, and `cut` when there is more output
/// than is wanted.
void read_all(int pipe, double deadline, const CaptureOptions& options, Captured& captured) {
  constexpr int stop_check_ms = 20;
  char buffer[65536];
  while (true) {
    const int left_ms = options.stop.stop_requested() ? 0 : static_cast<int>((deadline - steady_seconds()) * 1000);
    captured.too_late = left_ms <= 0;
    if (captured.too_late) return;
    pollfd wait{pipe, POLLIN, 0};
    const int ready = ::poll(&wait, 1, options.stop.stop_possible() ? std::min(left_ms, stop_check_ms) : left_ms);
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t n = ready < 0 ? -1 : ::read(pipe, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    captured.too_late = n < 0;
    if (n <= 0) return;
    const size_t room = options.bytes_max - captured.output.size();
    captured.output.append(buffer, std::min(static_cast<size_t>(n), room));
    captured.cut = static_cast<size_t>(n) > room;
    if (captured.cut) return;
  }
}

/// Waits for the end of the program, which may have closed its output before. Kills it and what it has started at the deadline, and at
/// once if `captured` says so. Returns its status.
int end_of(pid_t child, double deadline, const CaptureOptions& options, Captured& captured) {
  int status = 0;
  for (auto pause = std::chrono::microseconds(200);; pause = std::min(2 * pause, std::chrono::microseconds(20'000))) {
    const bool kill_it = captured.too_late || captured.cut;
    if (kill_it) ::kill(-child, SIGKILL);
    const pid_t ended = ::waitpid(child, &status, kill_it ? 0 : WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) return status;
    if (ended < 0) continue;
    captured.too_late = steady_seconds() >= deadline || options.stop.stop_requested();
    if (!captured.too_late) std::this_thread::sleep_for(pause);
  }
}

}  // namespace

Captured capture(std::vector<std::string> command, const CaptureOptions& options) {
  const double deadline = steady_seconds() + std::chrono::duration<double>(options.timeout).count();
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {.output = std::strerror(errno)};
  Descriptor read_end(ends[0]), write_end(ends[1]);
  pid_t child = 0;
  if (const int error = spawn(child, command, options, write_end.get())) return {.output = std::strerror(error)};
  write_end.close();
  Captured captured;
  read_all(read_end.get(), deadline, options, captured);
  const int status = end_of(child, deadline, options, captured);
  if (WIFEXITED(status)) captured.status = WEXITSTATUS(status);
  return captured;
}

}  // namespace runner
