// Reads the state of the code from git.
#include "runner/ledger/facts.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/clock.hpp"
#include "runner/base/exec.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"

namespace runner {

namespace {

struct Answer {
  int status = 0;      ///< exit status
  std::string output;  ///< stdout
};

/// This process's environment, with settings that keep git from writing the index and from prompting.
std::vector<std::string> git_environment() {
  std::vector<std::string> variables = {"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0"};
  for (char** variable = environ; *variable; ++variable)
    if (!std::string_view(*variable).starts_with("GIT_OPTIONAL_LOCKS=")) variables.emplace_back(*variable);
  return variables;
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

/// Runs git in `directory`. Empty if git could not be started or did not end in time.
std::optional<Answer> git(const std::filesystem::path& directory, std::vector<std::string> arguments,
                          std::chrono::milliseconds timeout) {
  // fsmonitor=false: git must not start a program that the repository's configuration names.
  arguments.insert(arguments.begin(), {"git", "-c", "core.fsmonitor=false", "-C", directory.string()});
  auto environment = git_environment();
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed =
      ::posix_spawnp(&child, "git", &actions, nullptr, exec_words(arguments).data(), exec_words(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  Answer answer;
  const bool complete =
      !failed && read_until(ends[0], steady_seconds() + std::chrono::duration<double>(timeout).count(), answer.output);
  ::close(ends[0]);
  if (failed) return std::nullopt;
  if (!complete) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!complete || !WIFEXITED(status)) return std::nullopt;
  answer.status = WEXITSTATUS(status);
  return answer;
}

nlohmann::json line_or_null(const std::optional<Answer>& answer) {
  if (!answer || answer->status != 0) return nullptr;
  return std::string(trim(answer->output));
}

}  // namespace

nlohmann::json git_state(const std::filesystem::path& directory, std::chrono::milliseconds timeout) {
  const auto head = git(directory, {"rev-parse", "--quiet", "--verify", "HEAD"}, timeout);
  constexpr int not_a_repository = 128;  // 1: a repository without a commit
  if (!head || head->status == not_a_repository) return nullptr;
  nlohmann::json state = {{"commit", line_or_null(head)}, {"dirty", nullptr}, {"diff_hash", nullptr}};
  state["branch"] = line_or_null(git(directory, {"symbolic-ref", "--quiet", "--short", "HEAD"}, timeout));
  const auto status = git(directory, {"status", "--porcelain", "--no-renames"}, timeout);
  if (!status || status->status != 0) return state;
  state["dirty"] = !status->output.empty();
  if (status->output.empty()) return state;
  Answer no_diff;  // before the first commit, there is nothing to compare with
  const auto diff =
      state["commit"].is_null()
          ? no_diff
          : git(directory, {"diff", "HEAD", "--binary", "--no-ext-diff", "--no-textconv", "--no-color"}, timeout);
  if (diff && diff->status == 0) state["diff_hash"] = xxh3_hex(status->output + diff->output);
  return state;
}

}  // namespace runner
