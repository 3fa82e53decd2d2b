// Secret values of a recorded recipe, for which "***" stands.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace runner {

/// The keys whose values the ledger does not keep. `run`: as in `runner show --json`.
std::vector<std::string> secret_keys(const nlohmann::json& run);

/// Throws Error(usage) unless the overrides (--set, --unset) replace each of these values.
void need_secret_values(const nlohmann::json& run, const std::vector<std::string>& overrides);

}  // namespace runner
