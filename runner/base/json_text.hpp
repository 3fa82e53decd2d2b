// JSON values as text.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace runner {

/// On one line. Bytes that are not UTF-8 are replaced, where dump() alone would throw.
inline std::string json_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace runner
