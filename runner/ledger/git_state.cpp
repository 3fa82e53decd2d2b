#include "runner/ledger/git_state.hpp"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>

#include "runner/base/blocked_signals.hpp"
#include "runner/base/capture.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"

namespace runner {

using nlohmann::json;

namespace {

constexpr size_t untracked_listed = 200;

/// Runs git in one folder.
class Git {
 public:
  Git(std::filesystem::path directory, const CodeStateOptions& options)
      : directory_(std::move(directory)), options_(options) {}

  Captured operator()(std::vector<std::string> arguments, size_t bytes_max = size_t{64} << 20) const {
    // fsmonitor=false: git must not start a program that the repository's configuration names.
    arguments.insert(arguments.begin(), {"git", "-c", "core.fsmonitor=false", "-C", directory_.string()});
    // git must neither write the index nor prompt.
    return capture(arguments, {.timeout = options_.timeout,
                               .environment = {"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0"},
                               .bytes_max = bytes_max,
                               .stop = options_.stop});
  }

 private:
  std::filesystem::path directory_;
  const CodeStateOptions& options_;
};

json line_or_null(const Captured& answer) {
  if (answer.status != 0) return nullptr;
  return std::string(trim(answer.output));
}

void add_untracked(const std::string& status, json& state) {
  state["untracked"] = json::array();
  int64_t count = 0;
  for (const auto& entry : split(status, '\0'))
    if (entry.starts_with("?? ") && static_cast<size_t>(++count) <= untracked_listed)
      state["untracked"].push_back(escape_invalid_utf8(entry.substr(3)));
  state["untracked_count"] = count;
}

/// The patches of the first files, without the one that was cut.
std::string whole_files(std::string patch, size_t bytes_max) {
  const std::string begin = "diff --git ";
  const auto last = patch.rfind("\n" + begin);
  patch.resize(last == std::string::npos ? 0 : last + 1);
  return patch + fmt::format("# cut: the changes are larger than {}, and those of further files are missing\n",
                             format_bytes(bytes_max));
}

void add_patch(Captured diff, const CodeStateOptions& options, CodeState& code) {
  code.git["patch"] = nullptr;
  if (diff.output.empty()) return;
  code.patch = diff.cut ? whole_files(std::move(diff.output), options.patch_bytes_max) : std::move(diff.output);
  code.git["patch"] = {{"digest", xxh3_hex(code.patch)}, {"bytes", code.patch.size()}, {"cut", diff.cut}};
}

void note_failure(const Captured& answer, const char* command, const CodeStateOptions& options, json& state) {
  if (answer.too_late)
    state["notes"].push_back(fmt::format("git {} did not answer within {}", command,
                                         format_duration(std::chrono::duration<double>(options.timeout).count())));
}

}  // namespace

CodeState read_code_state(const std::filesystem::path& directory, const CodeStateOptions& options) {
  const Git git(directory, options);
  const auto head = git({"rev-parse", "--quiet", "--verify", "HEAD"});
  constexpr int not_a_repository = 128;  // 1: a repository without a commit
  if (head.status < 0 || head.status == not_a_repository) return {nullptr};
  CodeState code{{{"commit", line_or_null(head)},
                  {"dirty", nullptr},
                  {"diff_hash", nullptr},
                  {"patch", nullptr},
                  {"untracked", json::array()},
                  {"untracked_count", nullptr},
                  {"notes", json::array()}}};
  json& state = code.git;
  state["branch"] = line_or_null(git({"symbolic-ref", "--quiet", "--short", "HEAD"}));
  Captured diff{.status = 0};  // before the first commit, there is nothing to compare with
  std::jthread differ;
  if (!state["commit"].is_null())
    differ = std::jthread([&] {
      diff = git({"diff", "HEAD", "--binary", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames",
                  "--no-relative", "--submodule=short", "--src-prefix=a/", "--dst-prefix=b/"},
                 options.patch_bytes_max);
    });
  const auto status = git({"status", "--porcelain", "--no-renames", "-z"});
  if (differ.joinable()) differ.join();
  note_failure(status, "status", options, state);
  note_failure(diff, "diff", options, state);
  if (status.status == 0) {
    state["dirty"] = !status.output.empty();
    add_untracked(status.output, state);
  }
  const bool complete = diff.status == 0 && !diff.cut;
  if (complete || diff.cut) add_patch(diff, options, code);
  if (state["dirty"] == true && complete) state["diff_hash"] = xxh3_hex(status.output + code.patch);
  return code;
}

struct CodeReader::Answer {
  std::mutex mutex;
  std::condition_variable ready;
  std::optional<CodeState> state;
};

CodeReader::CodeReader(const std::filesystem::path& directory) : answer_(std::make_shared<Answer>()) {
  const BlockedSignals blocked;  // signals are for the thread that supervises the run
  thread_ = std::jthread([answer = answer_, directory](const std::stop_token& stop) {
    constexpr std::chrono::milliseconds patience(15000);
    auto state = read_code_state(directory, {.timeout = patience, .stop = stop});
    const std::lock_guard lock(answer->mutex);
    answer->state = std::move(state);
    answer->ready.notify_all();
  });
}

const CodeState* CodeReader::wait(std::chrono::milliseconds patience) {
  if (state_) return &*state_;
  std::unique_lock lock(answer_->mutex);
  answer_->ready.wait_for(lock, patience, [&] { return answer_->state.has_value(); });
  if (!answer_->state) return nullptr;
  state_ = std::move(answer_->state);
  return &*state_;
}

}  // namespace runner
