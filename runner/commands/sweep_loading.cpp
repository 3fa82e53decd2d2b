#include "runner/commands/sweep_loading.hpp"

#include "runner/base/files.hpp"
#include "runner/commands/preflight.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/config/located_toml.hpp"
#include "runner/sweep/lua_sweep.hpp"

namespace runner {

sweep::SweepFile load_ready_sweep(const std::string& file, std::vector<std::string>& notes) {
  sweep::SweepFile sweep = sweep::load_sweep(file);
  Recipe base = load_ready_recipe(sweep.recipe, sweep.overrides);
  for (const auto& note : input_notes(base)) notes.push_back(note);
  sweep::check_recipes(sweep, check_inputs);
  for (const auto& note : {sweep::metric_note(sweep, base), sweep::budget_note(sweep)})
    if (!note.empty()) notes.push_back(note);
  return sweep;
}

bool is_sweep_file(const std::string& file) {
  try {
    if (!fs::is_regular_file(file)) return false;
    if (sweep::is_lua_sweep(file)) return sweep::read_lua_sweep(read_file(file), file).find("recipe") != nullptr;
    return parse_located_toml(read_file(file), file).find("sweep") != nullptr;
  } catch (const RecipeError&) {
    return false;  // the caller reads it as a recipe, which reports the error
  }
}

}  // namespace runner
