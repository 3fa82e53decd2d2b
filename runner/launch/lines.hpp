// JSON objects as lines, used on a worker's event pipe and between supervisors, which seal them.
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

#include "runner/base/sha256.hpp"

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

/// The environment variable with the secret of the nodes of a run.
inline constexpr const char* nodes_secret_variable = "RUNNER_NODES_SECRET";
/// The secret of this process; "" if the variable is not set. Throws Error(usage) if it is too short.
std::string nodes_secret();

/// Authenticates the lines between two supervisors by a secret that both have, as strategies/hivemind/channel.hpp does with its messages.
///
/// Both ends begin with a line {"say": "greeting", "nonce": 32 hexadecimal digits}. Each line after it begins with 32 digits and a space:
/// half of HMAC-SHA-256 over its number on this connection and its text, with the key of the direction. So a line of another connection,
/// or one that is repeated, left out or moved, is not authentic. The lines are not encrypted. A line above 1 MiB (LineReader) is not
/// authentic, so it ends the connection.
class LineSeal {
 public:
  /// `accepts`: this end has accepted the connection.
  LineSeal(std::string_view secret, bool accepts);
  /// The first line.
  std::string greeting() const;
  /// Whether the other end's greeting has been taken.
  bool is_open() const { return out_.has_value(); }
  /// Takes the other end's first line. Returns whether it is a greeting.
  bool take_greeting(std::string_view line);
  /// The line with its code. Call after take_greeting().
  std::string seal(std::string_view line);
  /// The text of a sealed line; empty if it is not authentic.
  std::optional<std::string_view> open(std::string_view line);

 private:
  std::string secret_;
  bool accepts_;
  Nonce own_ = new_nonce();
  std::optional<Hmac> out_, in_;
  uint64_t sent_ = 0, received_ = 0;
};

}  // namespace runner
