#include "runner/lua/hook_places.hpp"

#include "runner/lua/strategy_file.hpp"

namespace runner::lua {

using nlohmann::json;

namespace {

/// The recipe's scripts: the key that names each, and its file.
std::vector<std::pair<std::string, std::string>> scripts_of(const Recipe& recipe) {
  std::vector<std::pair<std::string, std::string>> scripts;
  const auto add = [&](const std::string& key, const json& file) {
    if (file.is_string()) scripts.emplace_back(key, file.get<std::string>());
  };
  const auto add_if_script = [&](const std::string& key, const json& name) {
    if (name.is_string() && names_script(name)) add(key, name.get<std::string>().substr(4));
  };
  for (const auto& file : recipe.hooks.files) add("hooks.files", file);
  if (recipe.train.early_stopping) add("train.early_stopping", "early_stopping");
  const auto& options = recipe.strategy.options;
  add_if_script("strategy.name", recipe.strategy.name);
  add_if_script("strategy.ddp_comm_hook", options.value("ddp_comm_hook", json()));
  add("strategy.name", options.value("registry", json()));
  if (recipe.data.order) add("data.order", *recipe.data.order);
  for (const auto& [key, path] : {std::pair("plugins.cluster_environment", recipe.plugins.cluster_environment),
                                  std::pair("plugins.checkpoint_io", recipe.plugins.checkpoint_io)})
    if (path && path->ends_with(".lua")) add(key, *path);
  return scripts;
}

constexpr const char* texts_key = "texts";

}  // namespace

json script_texts(const Recipe& recipe) {
  json texts = json::object();
  for (const auto& [key, file] : scripts_of(recipe))
    if (fs::is_regular_file(file)) texts[file] = read_file(file);
  return texts;
}

void write_hook_places(const Recipe& recipe, const fs::path& run_dir) {
  const auto scripts = scripts_of(recipe);
  if (scripts.empty()) return;
  json places = json::object();
  for (const auto& [key, script] : scripts) {
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
