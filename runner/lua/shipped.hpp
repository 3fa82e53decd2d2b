// Texts of recipes/hooks, recipes/strategies_lua and the editor's type definitions, so that an installed program does
// not need the source tree.
#pragma once
#include <map>
#include <string>

namespace runner::lua {

/// The hooks, and the strategies and comm hooks, that are part of the program: name -> text.
const std::map<std::string, std::string>& shipped_hooks();
const std::map<std::string, std::string>& shipped_strategies();

extern const char* const stubs_text;    ///< LuaLS definitions (recipes/hooks/types/runner.lua)
extern const char* const library_text;  ///< library.lua
extern const char* const sandbox_text;  ///< sandbox.lua

}  // namespace runner::lua
