// JSON objects as lines, on a worker's event pipe and between supervisors.
//
// JSON has no NaN or infinity: a field that is one, also in an object, travels as {"nonfinite": "nan" | "inf" |
// "-inf"}, so both sides see plain doubles. Text that is not UTF-8 arrives with U+FFFD in its place.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace runner {

/// With its newline.
std::string to_line(nlohmann::json object);
/// nullopt for what is not a JSON object.
std::optional<nlohmann::json> from_line(std::string_view line);

/// Cuts a stream of bytes into lines; keeps a partial line until its end comes. Of a line that is longer than one may
/// be, only the beginning is given.
class LineReader {
 public:
  std::vector<std::string> feed(std::string_view bytes);
  /// At the end of the stream: what a writer that died in the middle of a line left; "" if nothing.
  std::string finish();

 private:
  std::string partial_;
  bool skipping_ = false;  ///< inside a line that was too long
};

}  // namespace runner
