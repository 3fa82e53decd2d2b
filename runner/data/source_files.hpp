// Checks and identifies the data files of a recipe.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runner/base/files.hpp"

namespace runner {

/// Why `files` cannot be data: there is none, or one is missing, empty or not a regular file. One sentence per file, which begins
/// with `key`, the recipe's key. For a missing file, it ends with the nearest name in the folder.
std::vector<std::string> source_file_problems(const std::string& key, const std::vector<std::string>& files);

/// Throws Error(usage) with all source_file_problems().
void check_source_files(const std::string& key, const std::vector<std::string>& files);

/// The source_file_problems() of the paths that a plug-in opens, which may also be folders.
std::vector<std::string> source_path_problems(const std::string& key, const std::vector<std::string>& paths);
void check_source_paths(const std::string& key, const std::vector<std::string>& paths);

/// The files of these paths: a folder stands for all files below it, in order of their paths.
std::vector<std::string> files_of(const std::vector<std::string>& paths);

/// The existing file in `path`'s folder whose name is nearest to `path`'s, if one is near.
std::optional<std::string> nearest_file(const fs::path& path);

/// Identifies the state of the files, and of those in folders: absolute path, size and modification time of each, in order.
std::string fingerprint(const std::vector<std::string>& paths);

}  // namespace runner
