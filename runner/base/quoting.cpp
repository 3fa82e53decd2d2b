#include "runner/base/quoting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "runner/base/text.hpp"

namespace runner {

namespace {

/// `text` between quotes, each quote inside replaced by `inner`.
std::string between(char quote, std::string_view inner, std::string_view text) {
  std::string quoted(1, quote);
  for (const char c : text) c == quote ? quoted += inner : quoted += c;
  return quoted + quote;
}

bool is_number(const std::string& text) {
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  return end == text.c_str() + text.size();
}

/// The bytes of the control character at the beginning of UTF-8 text; 0: there is none.
size_t control_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
  if (byte(0) < 0x20 || byte(0) == 0x7f) return 1;
  if (byte(0) == 0xc2 && byte(1) < 0xa0) return 2;  // U+0080 to U+009F
  const bool turns = byte(0) == 0xe2 && ((byte(1) == 0x80 && (byte(2) == 0x8e || byte(2) == 0x8f)) ||
                                         (byte(1) == 0x80 && byte(2) >= 0xaa && byte(2) <= 0xae) ||
                                         (byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9));
  return turns ? 3 : 0;  // U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069
}

}  // namespace

std::string shell_word(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_not_of(
                                          "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                          "0123456789_-+=./:@%") == std::string::npos;
  return plain ? text : between('\'', "'\\''", text);
}

std::string shell_words(const std::vector<std::string>& words) {
  std::string line;
  for (const auto& word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

std::string gnuplot_string(std::string_view text) { return between('\'', "''", one_line(text)); }

std::string csv_cell(const std::string& text) {
  const bool computed =
      text.size() > 1 && std::string_view("=+-@\t\r").find(text[0]) != std::string_view::npos && !is_number(text);
  const std::string cell = computed ? "'" + text : text;
  return cell.find_first_of(",\"\r\n") == std::string::npos ? cell : between('"', "\"\"", cell);
}

std::string terminal_text(std::string_view text) {
  const std::string valid = escape_invalid_utf8(text);
  std::string clean;
  for (std::string_view rest = valid; !rest.empty();) {
    const size_t bytes = rest[0] == '\n' || rest[0] == '\t' ? 0 : control_bytes(rest);
    if (bytes == 3)
      clean += fmt::format("\\u20{:02X}", rest[1] == '\x80' ? rest[2] - '\x80' : 0x40 + (rest[2] - '\x80'));
    else if (bytes > 0)
      clean += fmt::format("\\x{:02X}", static_cast<unsigned char>(rest[bytes - 1]));
    else
      clean += rest[0];
    rest.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return clean;
}

std::string one_line(std::string_view text) {
  std::string line(text);
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return terminal_text(line);
}

}  // namespace runner
