// A file to which whole records are appended.
#pragma once
#include <string_view>

#include "runner/base/descriptor.hpp"
#include "runner/base/files.hpp"

namespace runner {

/// Each append() is one write(2), so a kill leaves whole records.
class AppendFile {
 public:
  /// Creates the file and its folder if they do not exist. Throws Error(environment).
  explicit AppendFile(const fs::path& path);
  void append(std::string_view bytes);
  /// Puts `bytes` in place of the last `old_size` bytes. A kill may leave out both.
  void replace_last(size_t old_size, std::string_view bytes);

 private:
  fs::path path_;
  Descriptor descriptor_;
};

}  // namespace runner
