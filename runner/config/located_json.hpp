// Configuration files of other tools, and TOML files other than recipes. Every key and value has its source location.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner {

/// A value and its location. Objects have `members`, in the order of the file; arrays and scalars have `value`.
struct LocatedJson {
  bool is_object = false;
  nlohmann::json value;  ///< objects inside arrays are plain values
  Origin place;
  Origin key_place;  ///< location of the value's key; of the value itself at the top level
  std::vector<std::pair<std::string, LocatedJson>> members = {};

  const LocatedJson* find(const std::string& name) const;
  /// The value without locations.
  nlohmann::json plain() const;
};

/// Reads JSON. Allows //, /* */ and # comments and trailing commas. Throws RecipeError at the first mistake: syntax, or a key that occurs
/// twice in one object. `name`: file name in locations.
LocatedJson parse_located_json(const std::string& text, const std::string& name);

/// Reads TOML. Members are in alphabetical order. Throws RecipeError at the first syntax error. `name`: file name in locations.
LocatedJson parse_located_toml(const std::string& text, const std::string& name);

}  // namespace runner
