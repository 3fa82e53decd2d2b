// Files that are written in portions or by other libraries, and exist completely or not at all.
#pragma once
#include <functional>

#include "runner/base/files.hpp"

namespace runner {

/// Makes a new empty file beside `path`, PATH.PID.tmp or PATH.N.PID.tmp. No other process uses it. Throws Error(environment).
fs::path new_temporary_file(const fs::path& path);

/// Calls `fill` with the name of a new empty file beside `path`. Then syncs that file and renames it to `path`. Throws
/// Error(environment), and what `fill` throws; `path` is then as it was.
void publish_file(const fs::path& path, const std::function<void(const fs::path& temporary)>& fill);

}  // namespace runner
