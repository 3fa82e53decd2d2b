// Sweep files with checked inputs.
#pragma once
#include <string>
#include <vector>

#include "runner/sweep/sweep_file.hpp"

namespace runner {

/// Loads a sweep file and checks its recipe, the recipes at the ends of its ranges, its metric and its inputs. Adds notes to
/// `notes`.
sweep::SweepFile load_ready_sweep(const std::string& file, std::vector<std::string>& notes);
/// Whether a file is a sweep file: TOML with a section [sweep], or Lua that returns a table with `recipe`.
bool is_sweep_file(const std::string& file);

}  // namespace runner
