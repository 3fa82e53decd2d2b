// Sweeps written in Lua: a file that returns what [sweep] says, and `run`, the function that proposes trials.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "runner/config/located_json.hpp"
#include "runner/lua/state.hpp"

namespace runner::sweep {

/// Whether a file's name says that it is one.
bool is_lua_sweep(const std::string& file);

/// A file that was run in a state of its own.
struct LuaSweep {
  std::unique_ptr<lua::State> state;
  lua::Reference run;
  LocatedJson table;  ///< all else that it returned, as [sweep] would be
};

/// 256 MiB, and for each stretch between two waits 100 million instructions and 30 seconds. `print`: default nowhere.
/// Throws RecipeError.
LuaSweep load_lua_sweep(const std::string& text, const std::string& file,
                        std::function<void(std::string_view line)> print = {});

/// The table alone.
LocatedJson read_lua_sweep(const std::string& text, const std::string& file);

}  // namespace runner::sweep
