// The one list of strategies by name, torch-free: what exists, what does not yet, and what each alias stands for.
#pragma once
#include <string>
#include <vector>

#include "strategies/contract/entry.hpp"

namespace runner {

const std::vector<Entry>& catalog();

/// Makes an entry that is not in the list (a strategy of a user's) known by its name to find_strategy(), in place of an
/// earlier one of that name. It stays valid to the end of the process.
const Entry* learn_strategy(Entry entry);

/// What an entry claims of a job, and what the job's hooks keep: in host memory where the rank's part of the parameters
/// is there.
MemoryParts claimed_memory(const Entry& entry, const Job& job);

/// What a name means: its entry and the options an alias presets.
struct Named {
  const Entry* entry = nullptr;
  nlohmann::json preset = nlohmann::json::object();
  const Alias* alias = nullptr;  ///< null when the name is the entry's own
};
/// nullopt for an unknown name. Names of the list are compared in lower case.
std::optional<Named> find_strategy(const std::string& name);
/// Every name and alias of what is built.
std::vector<std::string> strategy_names();

}  // namespace runner
