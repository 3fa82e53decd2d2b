// A Lua file that decides the order of samples (data.order).
#pragma once
#include "runner/lua/script_file.hpp"

namespace runner::lua {

/// The recipe's file. Its function `sample(position, epoch, size, usual)` returns the sample at a position of an epoch. Positions and
/// samples are numbers from 1 to `size`, epochs begin with 1, and `usual` is the sample that the order without the file has there.
/// The function must depend on its arguments only, because each rank asks for any position at any time. Mistakes go to
/// `diagnostics`; then there is no result.
std::optional<ScriptFile> load_order_file(State& state, const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

}  // namespace runner::lua
