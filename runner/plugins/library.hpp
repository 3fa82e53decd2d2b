// Opens the libraries that [plugins] of a recipe names.
#pragma once
#include "runner/plugins/parts.hpp"

namespace runner {

/// Throws Error(usage) if there is no such file, and names a file of its folder that has nearly the same name. `key`: of the recipe.
void check_library_file(const std::string& path, const std::string& key);

/// `key`: of the recipe, for messages. Throws Error(usage) if there is no such file, or if it cannot be loaded, exports no parts, or was
/// built for another version of the interface. It stays loaded until the process ends.
const parts::Library& open_parts(const std::string& path, const std::string& key);

}  // namespace runner
