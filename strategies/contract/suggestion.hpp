// Parts of messages about an option's value.
#pragma once
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/base/text.hpp"

namespace runner {

inline std::string in_quotes(const std::string& word) { return "\"" + word + "\""; }

/// " (did you mean "x"?)", or an empty string.
inline std::string suggestion(const nlohmann::json& given, const std::vector<std::string>& allowed) {
  auto near = given.is_string() ? nearest(given.get<std::string>(), allowed) : std::nullopt;
  return near ? fmt::format(" (did you mean {}?)", in_quotes(*near)) : "";
}

}  // namespace runner
