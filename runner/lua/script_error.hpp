// An error of a script as a diagnostic with its line and call stack.
#pragma once
#include <string>

#include "runner/config/diagnostics.hpp"
#include "runner/lua/error.hpp"
#include "runner/lua/key_places.hpp"

namespace runner::lua {

/// `places` belongs to `file`. An error in another file (from `require`) gets its file and line, without an excerpt.
RecipeError located(const LuaError& error, const KeyPlaces& places, const std::string& file, const std::string& code);

/// "hook ema failed in setup: WHAT", and where the recipe names its file, if that is known. `who`: "hook ema".
std::string failure_text(const std::string& who, const std::string& function, const std::string& what,
                         const Origin& asked_at);

}  // namespace runner::lua
