// Sweep files in Lua. Such a file returns a table: the keys of [sweep] and `run`, the function that proposes trials.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "runner/config/located_json.hpp"
#include "runner/lua/state.hpp"

namespace runner::sweep {

/// Whether the file's name ends in .lua.
bool is_lua_sweep(const std::string& file);

/// A loaded file. Each has its own Lua state.
struct LuaSweep {
  std::unique_ptr<lua::State> state;
  lua::Reference run;
  LocatedJson table;  ///< the other keys, as a TOML file would have them in [sweep]
};

/// Limits: 256 MiB of memory; 100 million instructions and 30 seconds between two waits. `print` receives the script's
/// output; without it the output is dropped. Throws RecipeError.
LuaSweep load_lua_sweep(const std::string& text, const std::string& file,
                        std::function<void(std::string_view line)> print = {});

/// Only the table.
LocatedJson read_lua_sweep(const std::string& text, const std::string& file);

}  // namespace runner::sweep
