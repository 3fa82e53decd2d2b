// YAML, for configuration files of other tools. Every key and value has its source location.
#pragma once
#include <string>

#include "runner/config/located_json.hpp"

namespace runner {

/// Reads one document whose top level is a mapping. Plain words are read as PyYAML reads them, and 1e-4 is a number. An alias is a copy of
/// its anchor; a merge key (<<) adds what the mapping lacks. Throws RecipeError at the first mistake: syntax, a key that occurs twice,
/// more than 100 levels, more than 20,000 values (with the copies of aliases). `name`: file name in locations.
LocatedJson parse_located_yaml(const std::string& text, const std::string& name);

}  // namespace runner
