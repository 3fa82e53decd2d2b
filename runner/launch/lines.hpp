// JSON objects as lines, used on a worker's event pipe and between supervisors.
//
// JSON has no NaN or infinity. A field with such a value, also in a nested object, is encoded as {"nonfinite": "nan" |
// "inf" | "-inf"} and decoded to a double. Bytes that are not UTF-8 are replaced by U+FFFD.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace runner {

/// The line includes its newline.
std::string to_line(nlohmann::json object);
/// Empty if the line is not a JSON object, or if it has more than 64 levels.
std::optional<nlohmann::json> from_line(std::string_view line);

/// A message of another host lacks a field, or a value is not one that this program sends.
class BadMessage : public std::runtime_error {
 public:
  explicit BadMessage(const std::string& field) : std::runtime_error("the message has no right \"" + field + "\"") {}
};

/// The fields of a message of another host. Throw BadMessage.
int number_in(const nlohmann::json& message, const char* field, int least, int most);
bool flag_in(const nlohmann::json& message, const char* field);
/// Printable, and at most 4096 bytes.
std::string text_in(const nlohmann::json& message, const char* field);

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
