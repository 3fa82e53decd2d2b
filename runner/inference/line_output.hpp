// Lines of results, to a file or to stdout. A file appears under its name when it is complete. Torch-free.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "runner/base/files.hpp"

namespace runner {

/// The message of an Error(interrupted) after the reader of standard output has gone away (`| head`). It is recorded and not printed:
/// usual tools end silently then.
inline constexpr const char* closed_output = "stopped, because standard output was closed";

/// JSON on one line, also for texts that are not UTF-8.
std::string line_of(const nlohmann::ordered_json& json);

/// Writes all of `text` to stdout at once, so that it is visible. Throws Error(environment) with the system's reason if it cannot be
/// written, and Error(interrupted) with closed_output if nobody reads it.
void print_now(const std::string& text);

/// The name of an output that process `pid` has not finished.
fs::path unfinished_output(const std::string& file, int64_t pid);

class LineOutput {
 public:
  /// Writes to unfinished_output(); to `file` itself if it is a device or pipe; to stdout if it is empty. Throws
  /// Error(environment) if it cannot be written.
  explicit LineOutput(const std::string& file);
  /// Removes the temporary file of an unfinished output.
  ~LineOutput();
  LineOutput(const LineOutput&) = delete;
  LineOutput& operator=(const LineOutput&) = delete;

  /// Throws Error(environment) with the system's reason, for example that the disk is full.
  void add(const std::string& text);
  void add(const nlohmann::ordered_json& line) { add(line_of(line)); }
  /// Gives the file its name. Throws as add().
  void finish();

 private:
  void flush();

  fs::path file_, temporary_;  ///< both are empty for stdout, and `temporary_` for a device
  int descriptor_ = -1;
  std::string waiting_;
};

}  // namespace runner
