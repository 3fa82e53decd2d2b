// The files of rows that a model of labels or numbers answers. Torch-free.
#pragma once
#include <string>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"

namespace runner {

/// Rows are read more than once, so standard input ("-") becomes a file in the folder `scratch`: JSON if it begins with { or [, otherwise
/// CSV.
class InputFiles {
 public:
  /// Throws Error(usage) if "-" is there twice, and Error(environment).
  InputFiles(std::vector<std::string> files, const fs::path& scratch);
  const std::vector<std::string>& paths() const { return paths_; }

  /// The text with "standard input" where it names the temporary file.
  std::string shown(std::string text) const;

  /// Calls `work`. Its errors say "standard input" where they name the temporary file.
  template <typename Work>
  auto read(Work&& work) const {
    try {
      return work();
    } catch (const Error& error) {
      throw Error(error.code(), shown(error.what()));
    }
  }

 private:
  void keep_standard_input(std::string& path, const fs::path& scratch);
  std::vector<std::string> paths_;
  std::string kept_ = {};  ///< the temporary file
};

}  // namespace runner
