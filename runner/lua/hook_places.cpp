#include "runner/lua/hook_places.hpp"

#include "runner/lua/hook_set.hpp"

namespace runner::lua {

using nlohmann::json;

namespace {

const char* const keys[] = {"hooks.files", "train.early_stopping"};

}  // namespace

void write_hook_places(const Recipe& recipe, const fs::path& run_dir) {
  if (hook_sources(recipe).empty()) return;
  json places = json::object();
  for (const char* key : keys) {
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
