// Answers what a `runner`, which has no LibTorch, asks about the memory of blocks (models/profiler.hpp).
#pragma once
#include <string>

namespace runner {

/// `runner-worker --profiles FOLDER`: reads a line {"source", "question"} at a time from stdin, and writes {"profiles"} or {"error"}.
/// `folder`: of descriptions of plug-ins. Returns the exit status.
int answer_profile_questions(const std::string& folder);

}  // namespace runner
