// Recipes in Lua: files that return a table with the structure of a TOML recipe, and where they define its keys.
//
// KeyPlaces reads the compiled file, because a table does not record where its fields were set. Exact results: keys with
// constant names in table constructors (`dim = 8`, `["dim"] = 8`) and assignments (`model.dim = 8`), in the returned
// table or in variables that are part of it by name. If a key is set twice, the last one in the file counts. Two tables,
// one in the other, that have a key of the same name in one line may exchange its columns. Keys that functions, loops or
// computed names set get an approximate place: the last place in the file that sets a key of that name, otherwise that of
// the innermost enclosing table that is known, otherwise the line of the last `return`.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runner/config/computed_recipe.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/lua/bytecode.hpp"
#include "runner/lua/error.hpp"

namespace runner::lua {

class KeyPlaces {
 public:
  /// `name` is the file name in the results. A text that does not compile has no keys.
  KeyPlaces(const std::string& text, const std::string& name);
  /// The place of a dotted key. "extends": the last call of `extend`.
  Origin find(const std::string& dotted) const;
  /// The place of a key whose names contain dots: {"space", "optimizer.lr"}. Empty: the last `return`.
  Origin find_path(const std::vector<std::string>& path) const;
  Origin line(int number) const;

  /// An error of the script as a diagnostic with its line and call stack. An error in another file (from `require`) gets its file and line,
  /// without an excerpt.
  RecipeError located(const LuaError& error, const std::string& code) const;
  /// Runs `work`, and throws its LuaError and ScriptMistake as RecipeError.
  void guard(const std::string& code, const std::function<void()>& work) const;

 private:
  struct Place {
    int line = 1, column = 1, span = 1;
    auto operator<=>(const Place&) const = default;
  };
  struct Table;
  using TablePointer = Table*;
  /// Known facts about a table or a function: where it begins, where its fields are set, and the tables in them.
  struct Table {
    int line = 0;
    std::map<std::string, Place> fields = {};
    std::map<std::string, TablePointer> inner = {};
  };

  void read(const Bytecode& code);
  void set(TablePointer table, const std::string& key, TablePointer value, int line);
  bool find_word(int line, const std::string& word, bool is_key, Place& found) const;
  Origin origin(const Place& place) const;

  std::string name_;
  std::vector<std::string> lines_;
  std::shared_ptr<std::deque<Table>> tables_ = std::make_shared<std::deque<Table>>(1);  ///< a table may be part of itself
  TablePointer globals_ = &tables_->front(), root_ = nullptr;
  std::set<Place> keys_;                   ///< that were found already: a line may set the same name twice
  std::map<std::string, Place> anywhere_;  ///< the last place that sets a key of this name
  Place return_;
  std::optional<Place> extend_;
};

/// A text that says which kind of file in Lua returns functions of these names, and how it is used: "this looks like a hook: ...".
/// Empty: no kind of file has one of them.
std::string kind_with_functions(const std::vector<std::string>& functions, const std::string& file);

/// Runs the file in a sandbox with limits of 256 MiB, a hundred million instructions and ten seconds. In addition to
/// the libraries, it has `extend "base.toml"` (or a .lua file; relative to this file). The recipe then extends that
/// file, as with `extends` in TOML, and the call returns the base's values in a new table for computations. print()
/// goes to the log. Throws RecipeError. KeyPlaces finds the places (above).
ComputedRecipe evaluate_recipe(const std::string& file, const BaseReader& read_base);

}  // namespace runner::lua
