// Diagnostics: located errors, printed as file:line:col, the line, a caret, what is allowed and the nearest name.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/config/recipe.hpp"

namespace runner {

/// One mistake. `code` is a short stable word for scripts, e.g. "unknown-key", "wrong-type", "out-of-bounds".
struct Diagnostic {
  Origin place = {};
  std::string code = "";
  std::string message = "";
  std::vector<std::string> allowed = {};       ///< values or names that would work
  std::optional<std::string> suggestion = {};  ///< nearest name
  std::optional<Origin> other = {};            ///< the second location of a contradiction
  std::string other_message = "";
  std::string section = "";  ///< of the recipe; empty: the mistake is in none
  std::string name = "";     ///< of an unknown key: its name, without the section
};

/// Sorts by line and column; mistakes without a line come last.
void sort_by_place(std::vector<Diagnostic>& diagnostics);

/// "recipe.toml:4:1", or "--set KEY=VALUE".
std::string place_of(const Origin& origin);

/// "recipe.toml:4:1: error: unknown key `n_layer` in [model]\n  4 | n_layer = 6\n    | ^~~~~~~\n  did you mean
/// `n_layers`?"
std::string render(const Diagnostic& diagnostic);
/// {file, line, column, code, message, allowed, suggestion}: an entry of `errors` in `runner check --json`.
nlohmann::json to_json(const Diagnostic& diagnostic);

/// All mistakes of one recipe. what() is the rendered text of all of them; exit code 2.
class RecipeError : public Error {
 public:
  explicit RecipeError(std::vector<Diagnostic> diagnostics);
  const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }

 private:
  std::vector<Diagnostic> diagnostics_;
};

}  // namespace runner
