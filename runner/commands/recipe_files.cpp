#include "runner/commands/recipe_files.hpp"

#include "runner/base/files.hpp"
#include "runner/base/xxh3.hpp"

namespace runner {

nlohmann::json recipe_files(const Recipe& recipe) {
  nlohmann::json files = nlohmann::json::object();
  auto add = [&](const std::string& file) {
    if (file.empty() || !fs::is_regular_file(file)) return;
    const std::string path = fs::absolute(file).lexically_normal().string();
    if (!files.contains(path)) files[path] = xxh3_hex(read_file(path));
  };
  add(recipe.file);
  for (const auto& [key, origin] : recipe.origins)
    if (origin.kind == Origin::Kind::file) add(origin.file);
  return files;
}

std::vector<std::string> changed_recipe_files(const nlohmann::json& before) {
  std::vector<std::string> changed;
  for (const auto& [path, hash] : before.items()) {
    if (!fs::is_regular_file(path) || xxh3_hex(read_file(path)) == hash) continue;
    const auto relative = fs::path(path).lexically_relative(fs::current_path());
    changed.push_back(relative.empty() || *relative.begin() == ".." ? path : relative.string());
  }
  return changed;
}

}  // namespace runner
