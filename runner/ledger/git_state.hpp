// The state of the code in git at the start of a run: commit, branch, and the changes that are not committed.
#pragma once
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

namespace runner {

struct CodeState {
  /// Null if there is no work tree or no git. Otherwise {commit, branch, dirty, diff_hash, patch, untracked, untracked_count,
  /// notes}. commit is null before the first commit; branch is null on a detached head. `dirty`: there are tracked changes or
  /// untracked files; diff_hash is then a hash of the changes' content and the untracked files' names, otherwise null. `patch`
  /// describes the text of this name: {digest, bytes, cut}, or null without tracked changes. `untracked` has the first names.
  /// Values that git did not return in time are null, and `notes` says so.
  nlohmann::json git;
  /// The tracked changes, as `git apply` takes them. If they are larger than patch_bytes_max, only those of the first files,
  /// with a last line that says so.
  std::string patch = {};
};

struct CodeStateOptions {
  std::chrono::milliseconds timeout = std::chrono::milliseconds(2000);  ///< for each git command
  size_t patch_bytes_max = size_t{4} << 20;
  std::stop_token stop = {};
};

/// The state of the code in the work tree that contains `directory`. Takes some milliseconds in a small repository.
CodeState read_code_state(const std::filesystem::path& directory, const CodeStateOptions& options = {});

/// Reads the state of the code on a thread of its own, because git may take seconds in a large repository.
class CodeReader {
 public:
  explicit CodeReader(const std::filesystem::path& directory);
  /// The state if it is known now or within `patience`, otherwise null.
  const CodeState* wait(std::chrono::milliseconds patience);

 private:
  std::optional<CodeState> state_;
  struct Answer;
  std::shared_ptr<Answer> answer_;
  std::jthread thread_;  ///< the destructor ends git
};

}  // namespace runner
