// The files of rows that a model of labels or numbers answers. Torch-free.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/base/scratch_folder.hpp"

namespace runner {

/// Rows are read more than once, so standard input ("-") becomes a file in a temporary folder: JSON if it begins with { or [, otherwise CSV.
class InputFiles {
 public:
  /// Throws Error(usage) if "-" is there twice, and Error(environment).
  explicit InputFiles(std::vector<std::string> files);
  const std::vector<std::string>& paths() const { return paths_; }

  /// Calls `work`. Its errors say "standard input" where they name the temporary file.
  template <typename Work>
  auto read(Work&& work) const {
    try {
      return work(paths_);
    } catch (const Error& error) {
      throw Error(error.code(), shown(error.what()));
    }
  }

 private:
  void keep_standard_input(std::string& path);
  std::string shown(std::string message) const;
  std::vector<std::string> paths_;
  std::unique_ptr<ScratchFolder> folder_;
  std::string kept_ = {};  ///< the temporary file
};

}  // namespace runner
