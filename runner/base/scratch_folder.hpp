// A temporary folder that is removed with the object, for runs that keep nothing.
#pragma once
#include "runner/base/descriptor.hpp"
#include "runner/base/files.hpp"

namespace runner {

class ScratchFolder {
 public:
  /// Makes a folder `parent`/.runner-scratch-XXXXXX that only this user can read, and locks it. If `parent` is the folder for
  /// temporary files, removes the scratch folders that killed processes of this user have left there: they are older than a minute, and no
  /// process locks them. Throws Error(environment).
  explicit ScratchFolder(const fs::path& parent);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  Descriptor lock_;
};

}  // namespace runner
