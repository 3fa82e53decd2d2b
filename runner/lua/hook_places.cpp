#include "runner/lua/hook_places.hpp"

#include "runner/lua/hook_set.hpp"
#include "runner/lua/strategy_file.hpp"

namespace runner::lua {

using nlohmann::json;

namespace {

/// Of a plug-in, which is a library or a Lua file.
bool names_lua_file(const std::optional<std::string>& path) { return path && path->ends_with(".lua"); }

/// Recipe keys that name a script.
std::vector<std::string> keys_with_scripts(const Recipe& recipe) {
  std::vector<std::string> keys;
  if (!hook_sources(recipe).empty()) keys = {"hooks.files", "train.early_stopping"};
  if (names_script(recipe.strategy.name) || recipe.strategy.options.contains("registry"))
    keys.push_back("strategy.name");
  const auto& options = recipe.strategy.options;
  if (auto hook = options.find("ddp_comm_hook"); hook != options.end() && hook->is_string() && names_script(*hook))
    keys.push_back("strategy.ddp_comm_hook");
  if (recipe.data.order) keys.push_back("data.order");
  if (names_lua_file(recipe.plugins.cluster_environment)) keys.push_back("plugins.cluster_environment");
  if (names_lua_file(recipe.plugins.checkpoint_io)) keys.push_back("plugins.checkpoint_io");
  return keys;
}

constexpr const char* texts_key = "texts";

}  // namespace

json script_texts(const Recipe& recipe) {
  const auto& options = recipe.strategy.options;
  std::vector<std::string> files;
  for (const auto& source : hook_sources(recipe)) files.push_back(source.file);
  for (const auto& name : {json(recipe.strategy.name), options.value("ddp_comm_hook", json())})
    if (name.is_string() && names_script(name)) files.push_back(name.get<std::string>().substr(4));
  if (recipe.data.order) files.push_back(*recipe.data.order);
  for (const auto& path : {recipe.plugins.cluster_environment, recipe.plugins.checkpoint_io})
    if (names_lua_file(path)) files.push_back(*path);
  if (auto registry = options.value("registry", json()); registry.is_string()) files.push_back(registry);
  json texts = json::object();
  for (const auto& file : files)
    if (fs::is_regular_file(file)) texts[file] = read_file(file);
  return texts;
}

void write_hook_places(const Recipe& recipe, const fs::path& run_dir) {
  auto keys = keys_with_scripts(recipe);
  if (keys.empty()) return;
  json places = json::object();
  for (const auto& key : keys) {
    Origin place = recipe.origin(key);
    if (place.line > 0) places[key] = {{"file", place.file}, {"line", place.line}, {"column", place.column}};
  }
  places[texts_key] = script_texts(recipe);
  write_file_atomic(run_dir / "hooks.json", places.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

void restore_hook_places(Recipe& recipe, const fs::path& run_dir) {
  auto file = run_dir / "hooks.json";
  if (!fs::exists(file)) return;
  auto places = json::parse(read_file(file));
  for (const auto& [key, place] : places.items()) {
    if (key == texts_key) continue;
    Origin origin;
    origin.kind = Origin::Kind::file;
    origin.file = place.at("file");
    origin.line = place.at("line");
    origin.column = place.at("column");
    recipe.origins[key] = origin;
  }
}

std::vector<std::string> changed_scripts(const Recipe& recipe, const fs::path& run_dir) {
  auto file = run_dir / "hooks.json";
  if (!fs::exists(file)) return {};
  const json before = json::parse(read_file(file)).value(texts_key, json::object()), now = script_texts(recipe);
  std::vector<std::string> changed;
  for (const auto& [path, text] : now.items())
    if (before.contains(path) && before[path] != text) changed.push_back(path);
  return changed;
}

}  // namespace runner::lua
