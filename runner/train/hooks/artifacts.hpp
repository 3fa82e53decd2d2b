// The files that hooks write in the run's folder. Rank 0 writes them; a resumed run continues them where its checkpoint
// was.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "runner/base/files.hpp"

namespace runner {

class Artifacts {
 public:
  Artifacts(fs::path folder, int rank) : folder_(std::move(folder)), rank_(rank) {}

  fs::path path(const std::string& name) const { return folder_ / name; }
  /// Creates the empty file. Returns false if it is known, and on ranks above 0. Throws lua::ScriptMistake.
  bool create(const std::string& name);
  /// Throws lua::ScriptMistake if not all of the text could be written.
  void append(const std::string& name, const std::string& text);
  /// Files that were written to since the last call. They must be durable before a checkpoint with their sizes.
  std::vector<fs::path> take_written();
  /// {name: bytes}, for a checkpoint.
  nlohmann::json sizes() const { return bytes_; }
  /// Truncates the files to these sizes. null is from an older checkpoint without sizes: all files keep theirs.
  void restore(const nlohmann::json& sizes);

 private:
  fs::path folder_;
  int rank_;
  std::map<std::string, int64_t> bytes_;  ///< of each artifact, by name
  std::set<std::string> written_;         ///< since take_written()
};

}  // namespace runner
