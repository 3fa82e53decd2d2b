// Joins the traces of the ranks of a run into one file.
#pragma once
#include <filesystem>

namespace runner {

/// Joins trace-rank-N.json of `folder` (train/profile.cpp) into trace.json. Returns its path, or an empty one if there are none.
std::filesystem::path join_traces(const std::filesystem::path& folder);

}  // namespace runner
