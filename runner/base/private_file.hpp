// Files that only their owner may read, because they have secrets.
#pragma once
#include "runner/base/files.hpp"

namespace runner {

/// write_file_atomic() with the permissions 0600 from the start. Throws Error(environment).
void write_private_file_atomic(const fs::path& path, std::string_view content);

}  // namespace runner
