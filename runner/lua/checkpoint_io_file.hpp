// A Lua file that keeps checkpoints in a second place (plugins.checkpoint_io).
#pragma once
#include <memory>
#include <set>

#include "runner/config/diagnostics.hpp"
#include "runner/config/recipe.hpp"
#include "runner/plugins/parts.hpp"

namespace runner::lua {

/// The parts::CheckpointIO that the file makes, and the options that it declares.
struct CheckpointIOFile {
  std::unique_ptr<parts::CheckpointIO> io;
  std::set<std::string> options;
};

/// The recipe's file. Its functions are save(run, name, folder, options), load(run, name, folder, options), remove(run, name, options) and
/// names(run, options). The first three return true; anything else, and an error, is a failure. Of [hooks], memory_limit applies to
/// them, but not time_limit and instruction_limit, because storing takes as long as the checkpoint is large. Options of the recipe that
/// the file does not declare are left to other plug-ins. Mistakes go to `diagnostics`; then `io` is null. Use it from one thread at a time.
CheckpointIOFile load_checkpoint_io_file(const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

}  // namespace runner::lua
