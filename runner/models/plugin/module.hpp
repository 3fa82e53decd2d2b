// The model of a plug-in: its library, and its blocks.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "runner/models/plugin/plugin.hpp"
#include "strategies/contract/module.hpp"

namespace runner {

/// The model of model.plugin. Throws Error(usage) if the library cannot be loaded, exports no plug-in, was built with another version of
/// the interface or of LibTorch, if it raises an exception, or if its model is contradictory.
plugin::Model make_plugin_model(const std::string& path, const nlohmann::json& options, const plugin::Sizes& sizes);

namespace plugin {

/// Adds the blocks of `blocks` to a model with their spec.
void add_blocks(runner::Model& model, std::vector<Block> blocks);

}  // namespace plugin

}  // namespace runner
