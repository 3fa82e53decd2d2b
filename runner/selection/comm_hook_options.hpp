// The options of a recipe's comm hook, which is built in or a Lua file.
#pragma once
#include <string>
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/config/recipe.hpp"

namespace runner {

/// With defaults. Mistakes in a Lua file or in the options go to `diagnostics`, and what options without an effect say to `notes`.
nlohmann::json comm_hook_options(const Recipe& recipe, std::vector<Diagnostic>& diagnostics,
                                 std::vector<std::string>* notes = nullptr);

}  // namespace runner
