// TOML files other than recipes. Every key and value has its source location.
#pragma once
#include <string>

#include "runner/config/located_json.hpp"

namespace runner {

/// Members are in alphabetical order. Throws RecipeError at the first syntax error. `name`: file name in locations.
LocatedJson parse_located_toml(const std::string& text, const std::string& name);

}  // namespace runner
