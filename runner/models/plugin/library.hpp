// Loads the library of a plug-in and calls its function.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "runner/models/plugin/plugin.hpp"

namespace runner {

/// The model of model.plugin. Throws Error(usage) if the library cannot be loaded, exports no plug-in, was built with another version of
/// the interface or of LibTorch, if it raises an exception, or if its model is contradictory.
plugin::Model make_plugin_model(const std::string& path, const nlohmann::json& options, const plugin::Sizes& sizes);

}  // namespace runner
