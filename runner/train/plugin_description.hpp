// Describes the model of a plug-in for the torch-free spec (models/plugin/spec.cpp): its blocks and parameters.
#pragma once
#include <nlohmann/json.hpp>

namespace runner {

/// `request`: {"plugin", "options", "vocab_size", "seq_len"}. Returns {"batch": [...], "blocks": [{"name", "parameters", "shared",
/// "flops_per_token", "output"}]}. `output`: elements per token of the batch. Throws Error(usage).
nlohmann::json describe_plugin(const nlohmann::json& request);

}  // namespace runner
