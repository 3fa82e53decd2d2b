// Variables of the environment with which Horovod is set up, as notes: a recipe is the whole description of a run, so none of them is read.
#pragma once
#include <string>
#include <vector>

namespace runner {

/// What takes the place of Horovod's process sets.
inline constexpr const char* process_sets_here =
    "process sets are named groups of ranks, which the function `setup` of a strategy in Lua makes: "
    "ctx.world:group(\"NAME\", {{0, 1}, {2, 3}}) has the collectives of ctx.world (recipes/strategies_lua/README.md)";

/// A note for each HOROVOD_ variable that is set and has a key in recipes, or nothing to set here. Those of a launcher
/// (HOROVOD_RANK, ...) are read by runner/launch.
std::vector<std::string> notes_of_horovod_variables();

}  // namespace runner
