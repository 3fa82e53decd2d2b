// The files of a folder that another program has written.
#pragma once
#include <functional>
#include <string_view>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"

namespace runner {

/// The path, absolute and normal, without a slash at its end.
fs::path clean_path(const fs::path& path);

/// The files at any depth that `is_wanted` accepts, in the order of their names, in which numbers count as numbers. Links to folders
/// are followed, and each folder is read once. Entries that cannot be read are left out.
std::vector<fs::path> files_below(const fs::path& folder, const std::function<bool(const fs::path&)>& is_wanted);

/// "a.9" before "a.10".
bool before_by_number(std::string_view a, std::string_view b);

/// Calls `read` for each file. Returns the errors; the others are read nevertheless.
std::vector<Error> read_each(const std::vector<fs::path>& files, const std::function<void(const fs::path&)>& read);

}  // namespace runner
