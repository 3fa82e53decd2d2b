// A file of recorded profiles: answers of the worker that are kept between processes. Torch-free.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "runner/models/profile_question.hpp"

namespace runner {

using KnownProfiles = std::map<std::string, std::shared_ptr<const BlockProfiles>>;  ///< by question, as JSON

/// Each line has a question and its answer, and is written at once, so that several processes can add to the file.
class ProfileFile {
 public:
  /// `about`: everything that all answers of the file depend on. Files that were not used for the longest time are removed, if all files of
  /// the folder have more than 64 MiB.
  ProfileFile(const std::filesystem::path& folder, const std::string& about);
  /// Lines that are damaged are left out.
  KnownProfiles read() const;
  /// Nothing is lost if it cannot be written: the worker is asked again.
  void add(const std::string& question, const nlohmann::json& answer) const;

 private:
  std::filesystem::path path_;
};

}  // namespace runner
