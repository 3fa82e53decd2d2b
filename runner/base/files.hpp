// Files: whole reads, atomic publishing (temporary name, fsync, rename), and memory maps. No half-written file remains.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
/// What a pattern matches, in the order of the paths' bytes; empty: nothing. Patterns are those of glob(7), and ** as a
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

}  // namespace runner
