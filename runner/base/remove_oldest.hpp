// Keeps a folder of files that can be made again within a bound.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace runner {

/// Removes the files of a folder with this extension that were not used for the longest time (by the time of their last change), so that
/// the others have at most `most_bytes`. What it cannot remove stays.
void remove_oldest(const std::filesystem::path& folder, const std::string& extension, uintmax_t most_bytes);

}  // namespace runner
