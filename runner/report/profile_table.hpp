// The profile of a run: as tables of the phases of a step, its blocks and its collectives, and the traces of its ranks in one file.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace runner {

/// `profile`: the fields of the event "profile" (launch/events.hpp). Lines end with a newline.
std::string profile_text(const nlohmann::json& profile);

/// Joins trace-rank-N.json of `folder` (train/profile.cpp) into trace.json. Returns its path, or an empty one if there are none.
std::filesystem::path join_traces(const std::filesystem::path& folder);

}  // namespace runner
