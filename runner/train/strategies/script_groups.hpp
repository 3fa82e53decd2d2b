// Groups of some ranks and barriers with names, for strategies in Lua.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "strategies/collective/world.hpp"

namespace runner {

/// Waits for all ranks. They compare the names that they give: if these differ, throws lua::ScriptMistake on all ranks with the name of each
/// one. `name` may be empty; messages show 200 bytes of it.
void named_barrier(World& world, const std::string& name);

/// The ranks of each group `name` that a script asks for. `given`: a list of ranks, or of such lists; null: the ranks of each node, if the
/// name is "node". Throws lua::ScriptMistake if it is wrong.
std::vector<std::vector<int>> rank_lists(const World& world, const std::string& name, const nlohmann::json& given,
                                         int local_size);

/// A group as its ranks see it. `world` is null on ranks that are in no group.
struct ScriptGroup {
  std::shared_ptr<World> world;
  std::vector<int> ranks;  ///< of the whole world
};
/// Collective over all ranks: makes a group for each list. Throws lua::ScriptMistake on all ranks if their arguments differ.
ScriptGroup make_script_group(World& world, const std::string& name, const std::vector<std::vector<int>>& lists);

}  // namespace runner
