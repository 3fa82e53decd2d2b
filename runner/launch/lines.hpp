// JSON objects as lines, used on a worker's event pipe and between supervisors.
//
// JSON has no NaN or infinity. A field with such a value, also in a nested object, is encoded as {"nonfinite": "nan" |
// "inf" | "-inf"} and decoded to a double. Bytes that are not UTF-8 are replaced by U+FFFD.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace runner {

/// The line includes its newline.
std::string to_line(nlohmann::json object);
/// Empty if the line is not a JSON object, or if it has more than 64 levels.
std::optional<nlohmann::json> from_line(std::string_view line);

/// Splits a stream of bytes into lines and keeps an incomplete line until the rest arrives. Of a line longer than 1 MiB,
/// only the beginning is returned.
class LineReader {
 public:
  std::vector<std::string> feed(std::string_view bytes);
  /// Called at the end of the stream. Returns the incomplete last line, "" if there is none.
  std::string finish();

 private:
  std::string partial_;
  bool skipping_ = false;  ///< inside a line that is too long
};

}  // namespace runner
