// The option mixed_precision of strategies that gather parameters. Torch-free.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "strategies/contract/precision.hpp"

namespace runner {

/// `mixed`: the option mixed_precision, a table of parts or one dtype for all. The dtype of a part ("param_dtype"); nullopt: it gives none.
std::optional<DType> mixed_dtype(const nlohmann::json& mixed, const char* part);
/// Why the option cannot have this value; nullopt if it can.
std::optional<std::string> refuse_mixed_precision(const nlohmann::json& mixed);
/// A note for the user on a part that has no effect.
std::optional<std::string> note_on_mixed_precision(const nlohmann::json& mixed);

}  // namespace runner
