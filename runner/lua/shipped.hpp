// Texts of recipes/hooks, recipes/strategies_lua and the editor's type definitions, and the Lua files of this folder, so that an
// installed program does not need the source tree.
#pragma once
#include <map>
#include <string>
#include <string_view>

namespace runner::lua {

/// The hooks, and the strategies and comm hooks, that are part of the program: name -> text.
const std::map<std::string, std::string>& shipped_hooks();
const std::map<std::string, std::string>& shipped_strategies();

extern const char* const stubs_text;  ///< LuaLS definitions (recipes/hooks/types/runner.lua)
/// library.lua and sandbox.lua as bytecode without debug information.
extern const std::string_view library_code, sandbox_code;

}  // namespace runner::lua
