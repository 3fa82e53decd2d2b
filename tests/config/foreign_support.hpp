// Recipes with names of other tools, and what is wrong in them.
#pragma once
#include "runner/config/config.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/selection/strategy_options.hpp"

namespace runner::testing {

inline const std::string small_recipe = R"([model]
name = "gpt"
n_layers = 2
dim = 64
n_heads = 4
max_seq_len = 32
[data]
format = "text"
train = ["a.txt"]
[train]
max_steps = 10
)";

inline Recipe read_foreign(const std::string& more, const std::vector<std::string>& overrides = {}) {
  return parse_recipe(more + small_recipe, "recipe.toml", overrides, reader_help());
}

/// Its message is "nothing" if nothing is wrong.
inline Diagnostic first_mistake(const std::string& more, const std::vector<std::string>& overrides = {}) {
  try {
    read_foreign(more, overrides);
  } catch (const RecipeError& error) {
    return error.diagnostics().at(0);
  }
  return {.message = "nothing"};
}

inline std::string wrong(const std::string& more, const std::vector<std::string>& overrides = {}) {
  return first_mistake(more, overrides).message;
}

}  // namespace runner::testing
