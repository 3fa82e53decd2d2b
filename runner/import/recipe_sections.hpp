// Prints the values that a configuration of another tool means as sections of a recipe.
#pragma once
#include <string>

#include "runner/config/importer.hpp"

namespace runner {

/// The notes as comments, then the sections. Options of the strategy keep their order.
std::string as_sections(const Imported& meaning);

}  // namespace runner
