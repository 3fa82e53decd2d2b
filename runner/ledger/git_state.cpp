#include "runner/ledger/git_state.hpp"

#include "runner/base/capture.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"

namespace runner {

namespace {

/// Runs git in `directory`.
Captured git(const std::filesystem::path& directory, std::vector<std::string> arguments,
             std::chrono::milliseconds timeout) {
  // fsmonitor=false: git must not start a program that the repository's configuration names.
  arguments.insert(arguments.begin(), {"git", "-c", "core.fsmonitor=false", "-C", directory.string()});
  // git must neither write the index nor prompt.
  return capture(arguments, {.timeout = timeout, .environment = {"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0"}});
}

nlohmann::json line_or_null(const Captured& answer) {
  if (answer.status != 0) return nullptr;
  return std::string(trim(answer.output));
}

}  // namespace

nlohmann::json git_state(const std::filesystem::path& directory, std::chrono::milliseconds timeout) {
  const auto head = git(directory, {"rev-parse", "--quiet", "--verify", "HEAD"}, timeout);
  constexpr int not_a_repository = 128;  // 1: a repository without a commit
  if (head.status < 0 || head.status == not_a_repository) return nullptr;
  nlohmann::json state = {{"commit", line_or_null(head)}, {"dirty", nullptr}, {"diff_hash", nullptr}};
  state["branch"] = line_or_null(git(directory, {"symbolic-ref", "--quiet", "--short", "HEAD"}, timeout));
  const auto status = git(directory, {"status", "--porcelain", "--no-renames"}, timeout);
  if (status.status != 0) return state;
  state["dirty"] = !status.output.empty();
  if (status.output.empty()) return state;
  const Captured no_diff{.status = 0};  // before the first commit, there is nothing to compare with
  const auto diff =
      state["commit"].is_null()
          ? no_diff
          : git(directory, {"diff", "HEAD", "--binary", "--no-ext-diff", "--no-textconv", "--no-color"}, timeout);
  if (diff.status == 0) state["diff_hash"] = xxh3_hex(status.output + diff.output);
  return state;
}

}  // namespace runner
