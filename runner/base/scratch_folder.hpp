// A temporary folder that is removed with the object, for runs that keep nothing.
#pragma once
#include <unistd.h>

#include <cstdlib>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"

namespace runner {

class ScratchFolder {
 public:
  /// Throws Error(environment).
  explicit ScratchFolder(const fs::path& parent) {
    std::error_code error;
    fs::create_directories(parent, error);
    std::string pattern = (parent / "runner-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw environment_error("cannot make a folder in {}", parent.string());
    path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace runner
