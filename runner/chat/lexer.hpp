// Splits a template into tokens, with the white space control of jinja2 3.1 and trim_blocks and lstrip_blocks on.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace runner::jinja {

enum class TokenKind : uint8_t {
  data,
  output_begin,
  output_end,
  block_begin,
  block_end,
  name,
  text,
  integer,
  real,
  sign,
  end
};

struct Token {
  TokenKind kind;
  size_t offset;     ///< in the source, bytes
  std::string text;  ///< of data, names and signs; the value of a string literal
  int64_t integer = 0;
  double real = 0;

  bool is_sign(std::string_view sign) const { return kind == TokenKind::sign && text == sign; }
  bool is_name(std::string_view name) const { return kind == TokenKind::name && text == name; }
};

/// The source as jinja2 reads it: every line end is "\n", and one line end at the end is gone.
std::string normalized_source(std::string_view text);

/// The tokens of a normalized source; the last one has the kind `end`. Raises TemplateError.
std::vector<Token> tokenize(const std::string& name, std::string_view source);

}  // namespace runner::jinja
