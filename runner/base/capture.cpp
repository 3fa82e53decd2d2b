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
  const int error = ::posix_spawnp(&child, command[0].c_str(), &actions, nullptr, exec_words(command).data(),
                                   exec_words(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

/// Reads until the end of the pipe. Returns false if the deadline passes first.
bool read_until(int pipe, double deadline, std::string& output) {
  char buffer[65536];
  while (true) {
    const int left_ms = static_cast<int>((deadline - steady_seconds()) * 1000);
    pollfd wait{pipe, POLLIN, 0};
    const int ready = left_ms > 0 ? ::poll(&wait, 1, left_ms) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t n = ::read(pipe, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0;
    output.append(buffer, static_cast<size_t>(n));
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
  captured.too_late = !read_until(read_end.get(), deadline, captured.output);
  if (captured.too_late) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) captured.status = WEXITSTATUS(status);
  return captured;
}

}  // namespace runner
