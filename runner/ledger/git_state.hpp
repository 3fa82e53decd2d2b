// The state of the code in git at the start of a run.
#pragma once
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace runner {

/// {commit, branch, dirty, diff_hash} of the work tree that contains `directory`; null if there is no work tree or no
/// git. commit is null before the first commit; branch is null on a detached head. `dirty`: there are tracked changes or
/// untracked files; diff_hash is then a hash of the changes' content and the untracked files' names, otherwise null.
/// Each git command may take up to `timeout`; values that git does not return in time are null.
nlohmann::json git_state(const std::filesystem::path& directory,
                         std::chrono::milliseconds timeout = std::chrono::milliseconds(2000));

}  // namespace runner
