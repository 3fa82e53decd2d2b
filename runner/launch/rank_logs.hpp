// Reads the logs of a run, line by line and with the attempt that wrote them: RUN_DIR/logs/rank-N.log and run.log.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "runner/base/files.hpp"

namespace runner {

struct RankLogLine {
  int rank = 0;         ///< -1: run.log
  int64_t attempt = 0;  ///< 0: of a program that did not separate attempts
  std::string text;     ///< without its line break, in valid UTF-8; at most 64 KiB
};
/// {schema, kind: "log", rank, attempt, text}; the rank of run.log is null
nlohmann::json to_json(const RankLogLine& line);

/// The logs in the folder: rank -> file. Empty if there is no such folder.
std::map<int, fs::path> rank_logs(const fs::path& run_dir);

/// The log of what the terminal showed (logging/run_log.hpp).
inline fs::path run_log(const fs::path& run_dir) { return run_dir / "logs" / "run.log"; }

/// Reads a log that may be growing. The headings of attempts are not lines.
class RankLogReader {
 public:
  RankLogReader(int rank, fs::path file) : rank_(rank), file_(std::move(file)) {}
  /// Calls `line` for each complete line since the last call. If the file has become shorter, because its middle was removed, goes on at
  /// its end. `to_end`: also a last line without a line break.
  void read(const std::function<void(const RankLogLine&)>& line, bool to_end);
  /// Continues from the end of the file; only its headings are read.
  void skip_to_end() {
    read([](const RankLogLine&) {}, false);
  }

 private:
  void take(std::string_view bytes, const std::function<void(const RankLogLine&)>& line);
  void finish(const std::function<void(const RankLogLine&)>& line);

  int rank_;
  fs::path file_;
  int64_t attempt_ = 0;
  uint64_t offset_ = 0;
  std::string partial_;
};

}  // namespace runner
