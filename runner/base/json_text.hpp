// JSON values as text.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace runner {

/// A value of nlohmann::json or ordered_json on one line. Bytes that are not UTF-8 are replaced, where dump() alone would throw.
template <typename Json>
std::string json_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace runner
