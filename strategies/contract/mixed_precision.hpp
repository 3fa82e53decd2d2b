// The option mixed_precision of strategies that gather parameters, and parts of messages about an option's value. Torch-free.
#pragma once
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/text.hpp"
#include "strategies/contract/precision.hpp"

namespace runner {

/// `mixed`: the option mixed_precision, a table of parts or one dtype for all. The dtype of a part ("param_dtype"); nullopt: it gives none.
std::optional<DType> mixed_dtype(const nlohmann::json& mixed, const char* part);
/// Why the option cannot have this value; nullopt if it can.
std::optional<std::string> refuse_mixed_precision(const nlohmann::json& mixed);
/// A note for the user on a part that has no effect.
std::optional<std::string> note_on_mixed_precision(const nlohmann::json& mixed);

inline std::string in_quotes(const std::string& word) { return "\"" + word + "\""; }

/// " (did you mean "x"?)", or an empty string.
inline std::string suggestion(const nlohmann::json& given, const std::vector<std::string>& allowed) {
  auto near = given.is_string() ? nearest(given.get<std::string>(), allowed) : std::nullopt;
  return near ? fmt::format(" (did you mean {}?)", in_quotes(*near)) : "";
}

}  // namespace runner
