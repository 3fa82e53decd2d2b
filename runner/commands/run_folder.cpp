#include "runner/commands/run_folder.hpp"

#include "runner/base/error.hpp"
#include "runner/base/private_file.hpp"
#include "runner/base/secrets.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/stored_model.hpp"
#include "runner/config/config.hpp"
#include "runner/data/data.hpp"
#include "runner/launch/lines.hpp"
#include "runner/ledger/bundle_files.hpp"
#include "runner/ledger/foreign_runs.hpp"
#include "runner/lua/hook_places.hpp"
#include "runner/lua/strategy_file.hpp"

namespace runner {

namespace {

/// Keys of other sections whose value is always a file or folder with code.
constexpr const char* files_with_code[] = {"model.plugin",      "data.plugin",     "data.order",
                                           "strategy.registry", "strategy.plugin", "strategy.compilation_cache"};
/// Keys whose value is a script if it begins with "lua:".
constexpr const char* names_or_scripts[] = {"strategy.name", "strategy.ddp_comm_hook"};

}  // namespace

RunFolder::RunFolder(const fs::path& run_dir) : run_dir_(run_dir) {
  constexpr auto others = fs::perms::group_all | fs::perms::others_all;
  for (const char* name : {"recipe.toml", "resolved.toml", "plan.json", "hooks.json"}) {
    const fs::path file = run_dir_ / name;
    const bool exists = fs::exists(file);
    before_[file] = exists ? std::optional(read_file(file)) : std::nullopt;
    if (exists && (fs::status(file).permissions() & others) == fs::perms::none) private_.insert(file);
  }
}

void RunFolder::write(const Recipe& recipe, const Plan& plan) const {
  std::error_code error;
  fs::create_directories(run_dir_ / "logs", error);
  if (error) throw environment_error("cannot make the folder {}: {}", (run_dir_ / "logs").string(), error.message());
  std::vector<std::string> keys;
  Secrets secrets;
  secrets.take_from(recipe_to_json(plan.recipe), keys);
  // A resume needs the secret values of the recipe, but nobody else does.
  const auto write = keys.empty() ? write_file_atomic : write_private_file_atomic;
  write(run_dir_ / "recipe.toml", print_recipe(recipe));
  write(run_dir_ / "resolved.toml", print_recipe(plan.recipe));
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
    if (text && private_.contains(file))
      write_private_file_atomic(file, *text);
    else if (text)
      write_file_atomic(file, *text);
    else
      fs::remove(file);
    changed = true;
  }
  return changed;
}

fs::path needed_folder(const Ledger& ledger, const std::string& run, const std::string& verb) {
  const fs::path folder = ledger.run_dir(run);
  if (fs::is_directory(folder)) {
    refuse_interrupted_import(ledger_home(), run, folder);
    return folder;
  }
  if (const auto origin = imported_from(ledger_home(), run); !origin.empty())
    throw usage_error(
        "run {} cannot be {}: it was imported from {}, without the files of its folder. Its settings and metrics are "
        "in the ledger",
        run, verb, origin);
  throw usage_error(
      "run {} cannot be {}: its folder {} was moved or deleted, and its checkpoints with it. Its settings, metrics and "
      "events are still in the ledger; a folder that was moved works again when it is back in its place",
      run, verb, folder.string());
}

nlohmann::json code_of(const Recipe& recipe) {
  std::vector<std::string> hidden;
  const nlohmann::json all = Secrets().take_from(recipe_to_json(recipe), hidden);
  auto code = nlohmann::json::object();
  for (const auto& [section, keys] : all.items())
    for (const auto& [name, value] : keys.items()) {
      const std::string key = section + "." + name;
      const bool script =
          std::ranges::count(names_or_scripts, key) && value.is_string() && lua::names_script(value.get<std::string>());
      if (section == "plugins" || section == "hooks" || std::ranges::count(files_with_code, key) || script)
        code[key] = value;
    }
  return code;
}

void refuse_other_code(const Recipe& own, const fs::path& run_dir) {
  const nlohmann::json here = code_of(own), there = code_of(load_recipe((run_dir / "resolved.toml").string()));
  std::vector<std::string> other;
  for (const auto& [key, value] : there.items())
    if (!here.contains(key) || here[key] != value)
      other.push_back(fmt::format("{} is {} there and {} here", key, value.dump(),
                                  here.contains(key) ? here[key].dump() : "not set"));
  if (!other.empty())
    throw usage_error(
        "the run's folder {} names other code than the recipe of this node: {}; without a secret ({}), a node runs "
        "only the code that its own recipe names",
        run_dir.string(), join(other, ", "), nodes_secret_variable);
}

}  // namespace runner
