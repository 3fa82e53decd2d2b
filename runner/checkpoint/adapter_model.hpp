// A model in a folder of PEFT: an adapter, whose base model is in another folder. Torch-free.
#pragma once
#include "runner/checkpoint/stored_model.hpp"

namespace runner {

/// Whether the folder has adapter_config.json, and no model of its own.
bool is_adapter_folder(const fs::path& folder);

/// The base model with the adapter added to its weights, as an export of the merged model would be. The base is `place.base`, or the folder
/// that adapter_config.json names, as a path of its own or relative to the working directory or the adapter's folder. The tokenizer is that
/// of the adapter's folder if it has one. Throws Error(usage) that says which base is needed if there is no such folder, and for
/// adapters of kinds that are not read.
StoredModel open_adapter_model(const ModelPlace& place);

}  // namespace runner
