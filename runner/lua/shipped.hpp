// Texts of recipes/hooks, recipes/strategies_lua and the editor's type definitions, so that an installed program does
// not need the source tree.
#pragma once
#include <cstddef>
#include <string_view>

namespace runner::lua {

extern const size_t shipped_count;
extern const char* const shipped_names[];
extern const char* const shipped_texts[];
extern const size_t shipped_strategies_count;
extern const char* const shipped_strategy_names[];
extern const char* const shipped_strategy_texts[];
/// LuaLS definitions (recipes/hooks/types/runner.lua).
extern const char* const stubs_text;
extern const char* const library_text;  ///< library.lua

}  // namespace runner::lua
