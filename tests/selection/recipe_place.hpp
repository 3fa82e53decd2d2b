// A folder with a small recipe and its Lua files, for tests of plans.
#pragma once
#include <string>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/config/config.hpp"
#include "runner/selection/strategy_options.hpp"
#include "tests/selection/small_plans.hpp"
#include "tests/support/temporary_folder.hpp"

namespace runner {

inline const std::string recipe_without_strategy = R"(
[model]
name = "gpt"
n_layers = 2
dim = 64
n_heads = 4
max_seq_len = 32
[data]
format = "text"
train = ["text.txt"]
[train]
max_steps = 10
global_batch_size = 8
)";

struct RecipePlace {
  TemporaryFolder folder;

  /// recipe.toml: `head`, the tables of recipe_without_strategy, `tail`.
  explicit RecipePlace(const std::string& head, const std::string& tail = "") {
    write("recipe.toml", head + recipe_without_strategy + tail);
  }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder.path / name).parent_path());
    write_file_atomic(folder.path / name, text);
  }
  Recipe load(const std::vector<std::string>& overrides = {}) const {
    return load_whole_recipe((folder.path / "recipe.toml").string(), overrides);
  }
  /// The diagnostics of load(), with file names relative to the folder; "" if there are none.
  std::string wrong(const std::vector<std::string>& overrides = {}) const {
    try {
      load(overrides);
    } catch (const RecipeError& error) {
      std::string text = error.what();
      for (size_t at; (at = text.find(folder.path.string() + "/")) != std::string::npos;)
        text.erase(at, folder.path.string().size() + 1);
      return text;
    }
    return "";
  }
};

}  // namespace runner
