// TOML that is no recipe, in which every key and value keeps its place.
#pragma once
#include <string>

#include "runner/config/located_json.hpp"

namespace runner {

/// Members come in alphabetical order. Throws RecipeError at the first mistake of syntax. `name` is the file's in
/// places.
LocatedJson parse_located_toml(const std::string& text, const std::string& name);

}  // namespace runner
