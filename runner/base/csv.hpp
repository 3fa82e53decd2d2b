// Writes cells of comma-separated tables (RFC 4180).
#pragma once
#include <string>

namespace runner {

/// `text`, quoted where it contains a comma, a quote or a line break.
inline std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

}  // namespace runner
