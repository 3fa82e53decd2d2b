// The profile of a run as tables: the phases of a step, its blocks and its collectives.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace runner {

/// `profile`: the fields of the event "profile" (launch/events.hpp). Lines end with a newline.
std::string profile_text(const nlohmann::json& profile);

}  // namespace runner
