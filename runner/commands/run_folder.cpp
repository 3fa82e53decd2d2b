#include "runner/commands/run_folder.hpp"

#include "runner/base/error.hpp"
#include "runner/base/secrets.hpp"
#include "runner/checkpoint/stored_model.hpp"
#include "runner/config/config.hpp"
#include "runner/data/data.hpp"
#include "runner/lua/hook_places.hpp"

namespace runner {

RunFolder::RunFolder(const fs::path& run_dir) : run_dir_(run_dir) {
  for (const char* name : {"recipe.toml", "resolved.toml", "plan.json", "hooks.json"})
    before_[run_dir_ / name] =
        fs::exists(run_dir_ / name) ? std::optional(read_file(run_dir_ / name)) : std::optional<std::string>();
}

void RunFolder::write(const Recipe& recipe, const Plan& plan) const {
  std::error_code error;
  fs::create_directories(run_dir_ / "logs", error);
  if (error) throw environment_error("cannot make the folder {}: {}", (run_dir_ / "logs").string(), error.message());
  write_file_atomic(run_dir_ / "recipe.toml", print_recipe(recipe));
  write_file_atomic(run_dir_ / "resolved.toml", print_recipe(plan.recipe));
  std::vector<std::string> keys;
  Secrets secrets;
  secrets.take_from(recipe_to_json(plan.recipe), keys);
  // A resume needs the secret values of the recipe, but nobody else does.
  if (!keys.empty())
    for (const char* name : {"recipe.toml", "resolved.toml"})
      fs::permissions(run_dir_ / name, fs::perms::owner_read | fs::perms::owner_write);
  write_file_atomic(run_dir_ / "plan.json", secrets.json_without(plan.to_json()).dump(2) + "\n");
  lua::write_hook_places(recipe, run_dir_);
}

void RunFolder::keep_tokenizer(const Recipe::Data& data, const std::string& cache_dir) const {
  if (data.tokenizer != "sentencepiece" || !needs_tokenizing(data)) return;
  write_file_atomic(run_dir_ / kept_tokenizer, read_file(tokenizer_files(data, cache_dir).front().path));
}

bool RunFolder::put_back() const {
  if (!before_.at(run_dir_ / "recipe.toml")) return false;
  bool changed = false;
  for (const auto& [file, text] : before_) {
    if (fs::exists(file) ? read_file(file) == text : !text) continue;
    if (text)
      write_file_atomic(file, *text);
    else
      fs::remove(file);
    changed = true;
  }
  return changed;
}

}  // namespace runner
