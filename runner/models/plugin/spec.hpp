// The spec of a plug-in's model, without LibTorch. A worker process describes the model (describe.hpp), once for each state of the
// library and each set of options and sizes.
#pragma once
#include <nlohmann/json.hpp>

#include "runner/base/files.hpp"
#include "runner/config/recipe.hpp"
#include "strategies/contract/model_spec.hpp"

namespace runner {

/// Where descriptions are kept, for this process. Without it they are kept in memory only.
void keep_plugin_descriptions(const fs::path& folder);

/// Throws Error(usage) with the plug-in's mistake, Error(environment) if the worker cannot be started.
ModelSpec plugin_spec(const Recipe::Model& model, int64_t vocab_size, int64_t seq_len);

/// The digest of model.plugin's library; "" for other models. Throws Error(usage) if there is no such file.
std::string plugin_digest(const Recipe::Model& model);

/// The spec of a description.
ModelSpec plugin_spec_of(const nlohmann::json& description, int64_t vocab_size, int64_t seq_len);

}  // namespace runner
