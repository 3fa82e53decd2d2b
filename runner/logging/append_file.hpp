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
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  Descriptor descriptor_;
};

}  // namespace runner
