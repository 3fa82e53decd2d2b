// Translates regular expressions from Oniguruma's Ruby syntax to PCRE2's.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

#include "runner/base/foreign_json.hpp"
#include "runner/tokenizers/regex.hpp"
#include "runner/tokenizers/unicode.hpp"

namespace runner {

namespace {

// The inside of classes. White_Space, and everything else.
constexpr std::string_view space =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view no_space =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
// Word characters. Outside of classes Oniguruma takes those below U+0100 from another table, with a few numbers.
constexpr std::string_view word = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::string_view word_in_class = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

bool is_category(std::string_view name) {
  static constexpr std::array names{"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl",
                                    "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk",
                                    "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Cs", "Co", "Cn", "L&"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// \p{NAME} of PCRE2, which takes the name of a script for its extensions if it is not told otherwise.
std::string property(std::string_view name) {
  static constexpr std::array binary{"Alphabetic", "Any", "ASCII", "Emoji", "Lowercase", "Uppercase", "White_Space"};
  if (is_category(name) || std::find(binary.begin(), binary.end(), name) != binary.end()) return std::string(name);
  return "sc:" + std::string(name);
}

class Translation {
 public:
  explicit Translation(std::string_view pattern) : in_(pattern) {}

  std::string run() {
    while (at_ < in_.size()) item();
    if (!groups_.empty()) refuse("a group without its end", in_.size());
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what, size_t where) const {
    throw std::invalid_argument(fmt::format("{} at offset {} is not supported", what, where));
  }
  bool follows(std::string_view text) const { return in_.substr(at_).starts_with(text); }

  /// Begins an atom, which a quantifier may follow.
  void atom() {
    atom_ = out_.size();
    quantified_ = false;
  }

  void item() {
    switch (in_[at_]) {
      case '\\':
        atom();
        return escape(false);
      case '[':
        atom();
        return character_class();
      case '(':
        return group();
      case ')':
        if (groups_.empty()) refuse("a `)` without its beginning", at_);
        atom_ = groups_.back();
        quantified_ = false;
        groups_.pop_back();
        out_ += in_[at_++];
        return;
      case '{':
        return repeat();
      case '*':
      case '+':
      case '?':
        out_ += in_[at_++];
        quantified_ = true;
        return;
      case '|':
      case '^':
      case '$':
        out_ += in_[at_++];
        return;
      default: {
        atom();
        const size_t size = unicode::length_of(in_[at_]);
        out_ += in_.substr(at_, size);
        at_ += size;
      }
    }
  }

  void group() {
    for (std::string_view start : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"})
      if (follows(start)) return open(start);
    if (follows("(?i)") || follows("(?-i)")) {
      const size_t size = in_.find(')', at_) + 1 - at_;
      out_ += in_.substr(at_, size);
      at_ += size;
      return;
    }
    if (follows("(?")) refuse(fmt::format("`{}`", in_.substr(at_, 4)), at_);
    open("(");
  }
  void open(std::string_view start) {
    groups_.push_back(out_.size());
    out_ += start == "(" ? "(?:" : start;
    at_ += start.size();
  }

  /// {n}, {n,}, {n,m} and {,m}. A `+` after it repeats, where PCRE2's would forbid to go back.
  void repeat() {
    const size_t end = in_.find('}', at_);
    const auto inside = end == std::string_view::npos ? "" : in_.substr(at_ + 1, end - at_ - 1);
    const bool numbers = !inside.empty() && inside.find_first_not_of("0123456789,") == std::string_view::npos &&
                         inside != "," && inside.find(',') == inside.rfind(',');
    if (!numbers) {
      atom();
      out_ += "\\{";
      ++at_;
      return;
    }
    out_ += inside.front() == ',' ? fmt::format("{{0{}}}", inside) : fmt::format("{{{}}}", inside);
    at_ = end + 1;
    quantified_ = true;
    if (at_ < in_.size() && in_[at_] == '+') {
      out_ = out_.substr(0, atom_) + "(?:" + out_.substr(atom_) + ")+";
      ++at_;
    }
  }

  /// An escape, in a class or outside.
  void escape(bool in_class) {
    if (at_ + 1 >= in_.size()) refuse("a `\\` at the end", at_);
    const char c = in_[at_ + 1];
    const auto set = [&](std::string_view content, bool negated) {
      if (!in_class)
        out_ += fmt::format("[{}{}]", negated ? "^" : "", content);
      else if (!negated)
        out_ += content;
      else
        refuse(fmt::format("`\\{}` in a class", c), at_);
      at_ += 2;
    };
    switch (c) {
      case 's':
        return set(space, false);
      case 'S':
        return in_class ? set(no_space, false) : set(space, true);
      case 'w':
        return set(in_class ? word_in_class : word, false);
      case 'W':
        return set(word, true);
      case 'h':
        return set("0-9A-Fa-f", false);
      case 'H':
        return set("0-9A-Fa-f", true);
      case 'd':
        return set("\\p{Nd}", false);
      case 'D':
        return set("\\P{Nd}", false);
      case 'b':
      case 'B':
        if (in_class) refuse("`\\b` in a class", at_);
        out_ += fmt::format("(?:(?<=[{0}])(?{1}[{0}])|(?<![{0}])(?{2}[{0}]))", word, c == 'b' ? '!' : '=',
                            c == 'b' ? '=' : '!');
        at_ += 2;
        return;
      case 'p':
      case 'P':
        return unicode_property();
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'v':
      case 'a':
      case 'e':
        out_ += c == 'v' ? "\\x{b}" : std::string{'\\', c};
        at_ += 2;
        return;
      case 'A':
      case 'z':
      case 'Z':
      case 'G':
        if (in_class || c == 'G') break;
        out_ += in_.substr(at_, 2);
        at_ += 2;
        return;
      case 'x':
      case 'u':
        return code(c);
      default:
        break;
    }
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
      refuse(fmt::format("`\\{}`", c), at_);
    const size_t size = unicode::length_of(c);
    if (size == 1) out_ += '\\';
    out_ += in_.substr(at_ + 1, size);
    at_ += 1 + size;
  }

  void unicode_property() {
    const size_t end = in_.find('}', at_);
    if (!follows("\\p{") && !follows("\\P{")) refuse("`\\p` without braces", at_);
    if (end == std::string_view::npos) refuse("`\\p{` without its end", at_);
    bool negated = in_[at_ + 1] == 'P';
    auto name = in_.substr(at_ + 3, end - at_ - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    out_ += fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', property(name));
    at_ = end + 1;
  }

  /// \xHH, \x{H...} and \uHHHH.
  void code(char kind) {
    size_t begin = at_ + 2, end = begin + (kind == 'u' ? 4 : 2);
    if (begin < in_.size() && in_[begin] == '{') {
      end = in_.find('}', begin);
      ++begin;
    }
    if (end == std::string_view::npos || end > in_.size()) refuse(fmt::format("`\\{}` without its end", kind), at_);
    const auto digits = in_.substr(begin, end - begin);
    if (digits.empty() || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
      refuse(fmt::format("`\\{}{}`", kind, shortened_text(std::string(digits))), at_);
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ = end < in_.size() && in_[end] == '}' && in_[begin - 1] == '{' ? end + 1 : end;
  }

  void character_class() {
    const size_t begin = at_;
    out_ += in_[at_++];
    if (follows("^")) out_ += in_[at_++];
    if (follows("]")) {
      out_ += "\\]";
      ++at_;
    }
    while (at_ < in_.size() && in_[at_] != ']') {
      if (follows("[")) {
        if (follows("[:")) {
          const size_t end = in_.find(":]", at_);
          if (end == std::string_view::npos) refuse("`[:` without its end", at_);
          refuse(fmt::format("`{}`", in_.substr(at_, end + 2 - at_)), at_);
        }
        refuse("a class inside a class", at_);
      }
      if (follows("&&")) refuse("`&&` in a class", at_);
      if (in_[at_] == '\\') {
        escape(true);
        continue;
      }
      const size_t size = unicode::length_of(in_[at_]);
      out_ += in_.substr(at_, size);
      at_ += size;
    }
    if (at_ >= in_.size()) refuse("a class without its end", begin);
    out_ += in_[at_++];
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;
  bool quantified_ = false;
  std::vector<size_t> groups_;  ///< where the open groups begin in out_
};

}  // namespace

std::string pcre_of(std::string_view oniguruma) { return Translation(oniguruma).run(); }

}  // namespace runner
