// The memory that a compiler claims for a step (strategies/xla/account.hpp). `runner recommend` asks runner-worker for it.
#pragma once
#include <string>

#include "runner/config/recipe.hpp"
#include "strategies/contract/entry.hpp"

namespace runner {

/// `request`: {"recipe": resolved TOML, "devices": their number, "cache_dir"}. Returns {"bytes": on each device}.
nlohmann::json describe_compiled_memory(const nlohmann::json& request);

/// Programs that a strategy compiles are kept with the other data that can be made again, unless the recipe names a folder.
void set_program_cache(Job& job, const Entry& entry, const std::string& cache_dir);

}  // namespace runner
