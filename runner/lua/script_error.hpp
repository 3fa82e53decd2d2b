// An error of a script as a diagnostic with its line and call stack.
#pragma once
#include <string>

#include "runner/config/diagnostics.hpp"
#include "runner/lua/error.hpp"
#include "runner/lua/key_places.hpp"

namespace runner::lua {

/// `places` belongs to `file`. An error in another file (from `require`) gets its file and line, without an excerpt.
RecipeError located(const LuaError& error, const KeyPlaces& places, const std::string& file, const std::string& code);

}  // namespace runner::lua
