// Files: whole reads, atomic publishing (temporary name, fsync, rename), and memory maps. No half-written file remains.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runner/base/descriptor.hpp"

namespace runner {

namespace fs = std::filesystem;

/// Reads a whole file. Throws Error(environment) naming the path and the system's reason.
std::string read_file(const fs::path& path);

/// Writes `content` to a temporary sibling, fsyncs, renames over `path`, fsyncs the folder. Throws Error(environment).
void write_file_atomic(const fs::path& path, std::string_view content);

/// Renames a finished folder into place and fsyncs both: after this returns the name exists completely or not at all.
void publish_directory(const fs::path& temporary, const fs::path& final_name);

/// fsync on a file or folder. Throws Error(environment).
void sync_path(const fs::path& path);

/// Whether a path has one of the characters * ? [ of a pattern. Folders at its beginning that exist as they are written
/// stand for themselves.
bool is_pattern(const fs::path& path);
/// The paths that a pattern matches, in the order of the paths' bytes; empty: nothing. Patterns are those of glob(7), and ** as a
/// part of the path matches the folder and all folders below it. A path that exists as it is written stands for itself.
std::vector<std::string> paths_like(const std::string& pattern);

/// A read-only memory map of a whole file; empty files map to an empty span.
class MappedFile {
 public:
  explicit MappedFile(const fs::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// The absolute path without links, "." and ".."; parts that do not exist stay as they are.
fs::path real_path(const fs::path& path);

/// Bytes of a file, or of all files below a folder. Files with several names in it count once; links are not followed. What cannot
/// be read, or disappears meanwhile, counts as 0.
int64_t bytes_below(const fs::path& path);

// Files that are written in portions or by other libraries, and exist completely or not at all.

/// Makes a new empty file in the folder of `path`. Its name has the id of this process (PATH.PID.tmp or PATH.N.PID.tmp), so no other
/// process uses it; a file or link that has the name already is left alone. Throws Error(environment).
fs::path new_temporary_file(const fs::path& path);
/// A new file with these permissions, less the umask, and open to be written. `temporary` is set to its name.
Descriptor create_temporary(const fs::path& path, mode_t mode, fs::path& temporary);

/// Calls `fill` with the name of a new_temporary_file(). Then syncs that file and renames it to `path`. Throws Error(environment), and
/// what `fill` throws. After an exception, `path` is unchanged.
void publish_file(const fs::path& path, const std::function<void(const fs::path& temporary)>& fill);

}  // namespace runner
