// Files that are written in portions or by other libraries, and exist completely or not at all.
#pragma once
#include <sys/types.h>

#include <functional>

#include "runner/base/descriptor.hpp"
#include "runner/base/files.hpp"

namespace runner {

/// Makes a new empty file in the folder of `path`. Its name has the id of this process (PATH.PID.tmp or PATH.N.PID.tmp), so no other
/// process uses it; a file or link that has the name already is left alone. Throws Error(environment).
fs::path new_temporary_file(const fs::path& path);
/// A new file with these permissions, less the umask, and open to be written. `temporary` is set to its name.
Descriptor create_temporary(const fs::path& path, mode_t mode, fs::path& temporary);

/// Calls `fill` with the name of a new_temporary_file(). Then syncs that file and renames it to `path`. Throws Error(environment), and
/// what `fill` throws. After an exception, `path` is unchanged.
void publish_file(const fs::path& path, const std::function<void(const fs::path& temporary)>& fill);

}  // namespace runner
