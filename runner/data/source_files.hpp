// The files a recipe names as data: refused early and by name when they cannot be what was meant.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runner/base/files.hpp"

namespace runner {

/// What keeps `files` from being data: none is named, or one is missing, empty or no regular file. A sentence for each
/// file, beginning with `key`, the recipe's key; of a missing file it ends with the nearest name in its folder.
std::vector<std::string> source_file_problems(const std::string& key, const std::vector<std::string>& files);

/// Throws Error(usage) with all source_file_problems().
void check_source_files(const std::string& key, const std::vector<std::string>& files);

/// The existing file in `path`'s folder whose name is nearest to `path`'s, if one is near.
std::optional<std::string> nearest_file(const fs::path& path);

/// What tells this state of the files from another: absolute path, size and modification time of each, in order.
std::string fingerprint(const std::vector<std::string>& files);

}  // namespace runner
