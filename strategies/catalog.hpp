// The list of all strategies, by name: those that are implemented, those that are not yet, and aliases. This header is
// torch-free.
#pragma once
#include <string>
#include <vector>

#include "strategies/contract/entry.hpp"

namespace runner {

const std::vector<Entry>& catalog();

/// Adds an entry that is not in the list (a user's strategy). find_strategy() then finds it by its name, and it replaces an
/// earlier entry with that name. The pointer is valid until the end of the process.
const Entry* learn_strategy(Entry entry);
/// find_strategy() does not find an added entry of that name any more. Its pointer stays valid.
void forget_strategy(const std::string& name);

/// Why a strategy with this plan cannot run the job, on its mesh and with its optimizer; nullopt if it can.
std::optional<std::string> refuse_plan(const Job& job, const ParallelPlan& plan);

/// The predicted memory of the strategy and of the job's hooks. If the optimizer is offloaded, the hooks' memory is in host
/// memory.
MemoryParts claimed_memory(const Entry& entry, const Job& job);

/// The result of a name: its entry, and the options that an alias sets.
struct Named {
  const Entry* entry = nullptr;
  nlohmann::json preset = nlohmann::json::object();
  const Alias* alias = nullptr;  ///< null if the name is that of the entry
};
/// nullopt for an unknown name. Names in the list are compared in lower case.
std::optional<Named> find_strategy(const std::string& name);
/// The result of a name in the list; nullopt for others. Added entries are left out.
std::optional<Named> find_listed_strategy(const std::string& name);
/// All names and aliases of implemented strategies.
std::vector<std::string> strategy_names();
/// The one of `names` that an unknown name was probably meant to be: "ZeRO-3" and "stage3" are deepspeed_stage_3.
std::optional<std::string> nearest_strategy(const std::string& given, const std::vector<std::string>& names);

}  // namespace runner
