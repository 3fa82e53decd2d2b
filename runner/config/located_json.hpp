// JSON with comments in which every key and value keeps its place: configuration files of other tools.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner {

/// A value and where it stands. Objects have members in the order of the file; arrays and scalars have `value`.
struct LocatedJson {
  bool is_object = false;
  nlohmann::json value;  ///< objects inside arrays are plain values
  Origin place;
  Origin key_place;  ///< of the key it stands under; the value's own place at the top
  std::vector<std::pair<std::string, LocatedJson>> members = {};

  const LocatedJson* find(const std::string& name) const;
  /// The whole of it without places.
  nlohmann::json plain() const;
};

/// Takes //, /* */ and # comments and trailing commas. Throws RecipeError at the first mistake: syntax, or a key that
/// stands twice in one object. `name` is the file's in places.
LocatedJson parse_located_json(const std::string& text, const std::string& name);

}  // namespace runner
