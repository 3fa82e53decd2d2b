#include "runner/chat/parser.hpp"

#include <algorithm>
#include <charconv>

#include "runner/chat/template_error.hpp"
#include "runner/chat/unicode.hpp"

namespace runner::jinja {
namespace {
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(std::string_view point) {
  char32_t c = decode(point);
  return c == '_' || (c | 32) - 'a' < 26 || c >= 0x80;
}

class Lexer {
 public:
  Lexer(const std::string& name, std::string_view source) : name_(name), source_(source) {}

  std::vector<Token> tokens() {
    while (at_ < source_.size()) data();
    add(TokenKind::end, at_);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(size_t offset, std::string message) const {
    throw TemplateError(name_, source_, offset, std::move(message));
  }
  bool starts(std::string_view word) const { return source_.substr(at_, word.size()) == word; }
  Token& add(TokenKind kind, size_t offset, std::string text = {}) {
    return tokens_.emplace_back(Token{.kind = kind, .offset = offset, .text = std::move(text)});
  }
  void skip_space() {
    while (at_ < source_.size()) {
      size_t bytes = unicode::length_of(source_[at_]);
      if (!is_space(decode(source_.substr(at_, bytes)))) return;
      at_ += bytes;
    }
  }

  /// Text up to the next tag, and that tag.
  void data() {
    size_t begin = at_, tag = begin;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == source_.npos ||
          (tag + 1 < source_.size() && std::string_view("{%#").find(source_[tag + 1]) != std::string_view::npos))
        break;
    }
    if (tag == source_.npos) {
      add(TokenKind::data, begin, std::string(source_.substr(begin)));
      at_ = source_.size();
      return;
    }
    char kind = source_[tag + 1];
    at_ = tag + 2;
    char control = at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+') ? source_[at_++] : ' ';
    auto text = source_.substr(begin, tag - begin);
    if (control == '-') {
      text = strip(text, Side::right);
    } else if (control != '+' && kind != '{') {
      text = without_indent(text);
    }
    if (!text.empty()) add(TokenKind::data, begin, std::string(text));
    if (kind == '#')
      comment(tag);
    else if (kind == '{')
      inside(tag, TokenKind::output_begin);
    else if (!raw(tag))
      inside(tag, TokenKind::block_begin);
    line_starting_ = source_[at_ - 1] == '\n';
  }

  /// lstrip_blocks: without the white space before a tag that is the first one of its line.
  std::string_view without_indent(std::string_view text) const {
    size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
    if (line == 0 && !line_starting_) return text;
    return strip(text.substr(line), Side::left).empty() ? text.substr(0, line) : text;
  }

  /// The end of a block or a comment: "-%}" and the white space behind it, "+%}", or "%}" and one line end (trim_blocks).
  bool close(std::string_view end) {
    bool strips = source_.substr(at_, 1) == "-" && source_.substr(at_ + 1, 2) == end;
    bool keeps = source_.substr(at_, 1) == "+" && source_.substr(at_ + 1, 2) == end;
    if (!strips && !keeps && !starts(end)) return false;
    at_ += strips || keeps ? 3 : 2;
    if (strips)
      skip_space();
    else if (!keeps && starts("\n"))
      ++at_;
    return true;
  }

  void comment(size_t tag) {
    for (; at_ < source_.size(); ++at_)
      if (close("#}")) return;
    fail(tag, "this comment has no end: #} is missing");
  }

  /// {% raw %} ... {% endraw %}; false for another block.
  bool raw(size_t tag) {
    size_t start = at_;
    skip_space();
    if (!starts("raw")) return at_ = start, false;
    at_ += 3;
    skip_space();
    bool strips = starts("-%}");
    if (!strips && !starts("%}")) return at_ = start, false;
    at_ += strips ? 3 : 2;
    if (strips) skip_space();
    size_t begin = at_;
    for (size_t next = source_.find("{%", begin); next != source_.npos; next = source_.find("{%", next + 1)) {
      at_ = next + 2;
      char control = starts("-") || starts("+") ? source_[at_++] : ' ';
      skip_space();
      if (!starts("endraw")) continue;
      at_ += 6;
      skip_space();
      if (!close("%}")) continue;
      auto text = source_.substr(begin, next - begin);
      line_starting_ = source_[begin - 1] == '\n';
      if (control == '-')
        text = strip(text, Side::right);
      else if (control != '+')
        text = without_indent(text);
      if (!text.empty()) add(TokenKind::data, begin, std::string(text));
      return true;
    }
    fail(tag, "this raw block has no end: {% endraw %} is missing");
  }

  /// The tokens inside {{ }} or {% %}.
  void inside(size_t tag, TokenKind begin) {
    bool block = begin == TokenKind::block_begin;
    add(begin, tag);
    std::string open;  // brackets that are not closed yet
    for (;;) {
      skip_space();
      size_t here = at_;
      if (at_ >= source_.size())
        fail(tag, block ? "this tag has no end: %} is missing" : "this output has no end: }} is missing");
      if (open.empty() && (block ? close("%}") : close_output())) {
        add(block ? TokenKind::block_end : TokenKind::output_end, here);
        return;
      }
      if (number() || name() || text()) continue;
      sign(open);
    }
  }

  bool close_output() {
    bool strips = starts("-}}");
    if (!strips && !starts("}}")) return false;
    at_ += strips ? 3 : 2;
    if (strips) skip_space();
    return true;
  }

  std::string digits(size_t& at) const {
    std::string result;
    while (at < source_.size() && (is_digit(source_[at]) || (source_[at] == '_' && !result.empty() &&
                                                             at + 1 < source_.size() && is_digit(source_[at + 1]))))
      if (char c = source_[at++]; c != '_') result += c;
    return result;
  }

  bool number() {
    size_t begin = at_, at = at_;
    if (!is_digit(source_[at])) return false;
    if (prefixed_integer()) return true;
    auto whole = digits(at);
    auto written = whole;
    bool real = false;
    bool after_dot = begin > 0 && source_[begin - 1] == '.';
    if (!after_dot && at + 1 < source_.size() && source_[at] == '.' && is_digit(source_[at + 1])) {
      real = true;
      written += '.' + digits(++at);
    }
    if (!after_dot && at < source_.size() && (source_[at] | 32) == 'e') {
      size_t exponent = at + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
      if (exponent < source_.size() && is_digit(source_[exponent])) {
        written += source_.substr(at, exponent - at);
        written += digits(at = exponent);
        real = true;
      }
    }
    if (real) {
      at_ = at;
      std::from_chars(written.data(), written.data() + written.size(), add(TokenKind::real, begin).real);
      return true;
    }
    // A zero begins no longer number, as in Python: "012" is two tokens.
    if (whole[0] == '0' && whole.find_first_not_of('0') != whole.npos)
      fail(begin, fmt::format("{} begins with a zero", whole));
    return integer(begin, at, whole, 10);
  }

  bool prefixed_integer() {
    size_t begin = at_;
    if (source_[at_] != '0' || at_ + 2 >= source_.size()) return false;
    char letter = static_cast<char>(source_[at_ + 1] | 32);
    int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (base == 0) return false;
    std::string written;
    size_t at = at_ + 2;
    for (; at < source_.size() && (isalnum(static_cast<unsigned char>(source_[at])) || source_[at] == '_'); ++at)
      if (source_[at] != '_') written += source_[at];
    return integer(begin, at, written, base);
  }

  bool integer(size_t begin, size_t end, const std::string& written, int base) {
    int64_t value = 0;
    auto [rest, error] = std::from_chars(written.data(), written.data() + written.size(), value, base);
    if (error != std::errc() || rest != written.data() + written.size())
      fail(begin, fmt::format("{} is no integer of 64 bits", source_.substr(begin, end - begin)));
    at_ = end;
    add(TokenKind::integer, begin).integer = value;
    return true;
  }

  bool name() {
    size_t begin = at_;
    while (at_ < source_.size()) {
      auto point = source_.substr(at_, unicode::length_of(source_[at_]));
      if (!is_name_start(point) && !(at_ > begin && is_digit(point[0]))) break;
      at_ += point.size();
    }
    if (at_ == begin) return false;
    add(TokenKind::name, begin, std::string(source_.substr(begin, at_ - begin)));
    return true;
  }

  bool text() {
    size_t begin = at_;
    char quote = source_[at_];
    if (quote != '\'' && quote != '"') return false;
    std::string value;
    for (++at_; at_ < source_.size() && source_[at_] != quote;)
      if (source_[at_] == '\\')
        escape(value);
      else
        value += source_[at_++];
    if (at_ >= source_.size()) fail(begin, "this string has no end");
    ++at_;
    add(TokenKind::text, begin, std::move(value));
    return true;
  }

  /// Adds the text of an escape sequence of Python to `value`. An unknown one stays as it is written.
  void escape(std::string& value) {
    constexpr std::string_view letters = "nrtabfv\\'\"", meanings = "\n\r\t\a\b\f\v\\'\"";
    size_t begin = at_++;
    if (at_ >= source_.size()) return;
    char c = source_[at_];
    if (auto i = letters.find(c); i != letters.npos) {
      value += meanings[i];
      ++at_;
    } else if (c == '\n') {
      ++at_;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      ++at_;
      hexadecimal(begin, c == 'x' ? 2 : c == 'u' ? 4 : 8, value);
    } else if (c >= '0' && c <= '7') {
      char32_t point = 0;
      for (int i = 0; i < 3 && at_ < source_.size() && source_[at_] >= '0' && source_[at_] <= '7'; ++i)
        point = point * 8 + static_cast<char32_t>(source_[at_++] - '0');
      unicode::append(value, point);
    } else if (c == 'N') {
      fail(begin, "\\N{...} is not supported; write the character itself");
    } else if (static_cast<unsigned char>(c) >=
               0x80) {  // jinja2 writes the number of the character: "\é" is the text \xe9
      auto point = source_.substr(at_, unicode::length_of(c));
      auto number = static_cast<uint32_t>(decode(point));
      at_ += point.size();
      value += number < 0x100     ? fmt::format("\\x{:02x}", number)
               : number < 0x10000 ? fmt::format("\\u{:04x}", number)
                                  : fmt::format("\\U{:08x}", number);
    } else {
      value += '\\';
    }
  }

  void hexadecimal(size_t begin, size_t count, std::string& value) {
    uint32_t point = 0;
    auto written = source_.substr(at_, count);
    auto [rest, error] = std::from_chars(written.data(), written.data() + written.size(), point, 16);
    if (written.size() < count || error != std::errc() || rest != written.data() + count)
      fail(begin, fmt::format("this escape needs {} hexadecimal digits", count));
    if (point > 0x10FFFF || (point >= 0xD800 && point < 0xE000))
      fail(begin, fmt::format("U+{:04X} is no character", point));
    unicode::append(value, point);
    at_ += count;
  }

  void sign(std::string& open) {
    constexpr std::string_view two[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view one = "+-/*%~[](){}><=.:|,;", begins = "([{", ends = ")]}";
    size_t begin = at_;
    for (auto written : two)
      if (starts(written)) {
        at_ += 2;
        add(TokenKind::sign, begin, std::string(written));
        return;
      }
    char c = source_[at_];
    if (one.find(c) == one.npos)
      fail(begin, fmt::format("unexpected character '{}'", source_.substr(at_, unicode::length_of(c))));
    if (begins.find(c) != begins.npos) open += c;
    if (auto i = ends.find(c); i != ends.npos) {
      if (open.empty()) fail(begin, fmt::format("unexpected '{}'", c));
      if (open.back() != begins[i])
        fail(begin, fmt::format("unexpected '{}', expected '{}'", c, ends[begins.find(open.back())]));
      open.pop_back();
    }
    ++at_;
    add(TokenKind::sign, begin, std::string(1, c));
  }

  const std::string& name_;
  std::string_view source_;
  size_t at_ = 0;
  bool line_starting_ = true;  ///< the token before the text ended with a line end
  std::vector<Token> tokens_;
};
}  // namespace

std::string normalized_source(std::string_view text) {
  std::string source;
  source.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    source += text[i] == '\r' ? '\n' : text[i];
  }
  if (!source.empty() && source.back() == '\n') source.pop_back();
  return source;
}

std::vector<Token> tokenize(const std::string& name, std::string_view source) { return Lexer(name, source).tokens(); }

}  // namespace runner::jinja
