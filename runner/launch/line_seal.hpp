// Authenticates the lines between two supervisors by a secret that both have, as strategies/hivemind/channel.hpp does with its messages.
//
// Both ends begin with a line {"say": "greeting", "nonce": 32 hexadecimal digits}. Each line after it begins with 32 digits and a space:
// half of HMAC-SHA-256 over its number on this connection and its text, with the key of the direction. So a line of another connection,
// or one that is repeated, left out or moved, is not authentic. The lines are not encrypted. A line above 1 MiB (LineReader) is not
// authentic, so it ends the connection.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "runner/base/sha256.hpp"

namespace runner {

/// The environment variable with the secret of the nodes of a run.
inline constexpr const char* nodes_secret_variable = "RUNNER_NODES_SECRET";
/// The secret of this process; "" if the variable is not set. Throws Error(usage) if it is too short.
std::string nodes_secret();

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
