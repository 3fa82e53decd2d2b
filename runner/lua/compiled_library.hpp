// The library of scripts that is written in Lua, without a compilation for each state.
#pragma once
#include <string>

namespace runner::lua {

/// library.lua as bytecode without debug information, compiled once for all states.
const std::string& compiled_library();

}  // namespace runner::lua
