// An error of a script as a diagnostic: its line, the calls that led there.
#pragma once
#include <string>

#include "runner/config/diagnostics.hpp"
#include "runner/lua/error.hpp"
#include "runner/lua/key_places.hpp"

namespace runner::lua {

/// `places` are those of `file`; an error in another one (that it requires) has its own place, without the line.
RecipeError located(const LuaError& error, const KeyPlaces& places, const std::string& file, const std::string& code);

}  // namespace runner::lua
