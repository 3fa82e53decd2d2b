#include "runner/lua/hook_places.hpp"

#include "runner/lua/hook_set.hpp"
#include "runner/lua/strategy_file.hpp"

namespace runner::lua {

using nlohmann::json;

namespace {

/// The keys of a recipe that name a script.
std::vector<std::string> keys_with_scripts(const Recipe& recipe) {
  std::vector<std::string> keys;
  if (!hook_sources(recipe).empty()) keys = {"hooks.files", "train.early_stopping"};
  if (names_script(recipe.strategy.name) || recipe.strategy.options.contains("registry"))
    keys.push_back("strategy.name");
  const auto& options = recipe.strategy.options;
  if (auto hook = options.find("ddp_comm_hook"); hook != options.end() && hook->is_string() && names_script(*hook))
    keys.push_back("strategy.ddp_comm_hook");
  return keys;
}

}  // namespace

void write_hook_places(const Recipe& recipe, const fs::path& run_dir) {
  auto keys = keys_with_scripts(recipe);
  if (keys.empty()) return;
  json places = json::object();
  for (const auto& key : keys) {
    Origin place = recipe.origin(key);
    if (place.line > 0) places[key] = {{"file", place.file}, {"line", place.line}, {"column", place.column}};
  }
  write_file_atomic(run_dir / "hooks.json", places.dump(2) + "\n");
}

void restore_hook_places(Recipe& recipe, const fs::path& run_dir) {
  auto file = run_dir / "hooks.json";
  if (!fs::exists(file)) return;
  auto places = json::parse(read_file(file));
  for (const auto& [key, place] : places.items()) {
    Origin origin;
    origin.kind = Origin::Kind::file;
    origin.file = place.at("file");
    origin.line = place.at("line");
    origin.column = place.at("column");
    recipe.origins[key] = origin;
  }
}

}  // namespace runner::lua
