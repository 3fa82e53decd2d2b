// The files a recipe names as data: refused early and by name when they cannot be what was meant.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runner/base/files.hpp"

namespace runner {

/// Throws Error(usage) unless `files` is not empty and each is a file with something in it. `key` is the recipe's key,
/// for the message; a missing file's message ends with the nearest name in its folder.
void check_source_files(const std::string& key, const std::vector<std::string>& files);

/// The existing file in `path`'s folder whose name is nearest to `path`'s, if one is near.
std::optional<std::string> nearest_file(const fs::path& path);

/// What tells this state of the files from another: absolute path, size and modification time of each, in order.
std::string fingerprint(const std::vector<std::string>& files);

}  // namespace runner
