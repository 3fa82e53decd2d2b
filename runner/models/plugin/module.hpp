// The blocks of a plug-in's model.
#pragma once
#include "runner/models/plugin/library.hpp"
#include "strategies/contract/module.hpp"

namespace runner::plugin {

/// Adds the blocks of `blocks` to a model with their spec.
void add_blocks(runner::Model& model, std::vector<Block> blocks);

}  // namespace runner::plugin
