// The bytes that files take.
#pragma once
#include <cstdint>

#include "runner/base/files.hpp"

namespace runner {

/// Bytes of a file, or of all files below a folder. Files with several names in it count once; links are not followed. What cannot
/// be read, or disappears meanwhile, counts as 0.
int64_t bytes_below(const fs::path& path);

}  // namespace runner
