// Files that are written in portions or by other libraries, and exist completely or not at all.
#pragma once
#include <functional>

#include "runner/base/files.hpp"

namespace runner {

/// Makes an empty file beside `path` that no other process has: PATH.PID.tmp, or PATH.N.PID.tmp. Throws Error(environment).
fs::path new_temporary_file(const fs::path& path);

/// Calls `fill` with the name of a new empty file beside `path`, syncs the file and gives it its name. Throws Error(environment), and
/// what `fill` throws; `path` is then as it was.
void publish_file(const fs::path& path, const std::function<void(const fs::path& temporary)>& fill);

}  // namespace runner
