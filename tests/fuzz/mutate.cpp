// Changes of files, without knowledge of their formats.
#include <algorithm>
#include <cstring>

#include "fuzz.hpp"

namespace runner::fuzz {

namespace {

constexpr size_t bytes_max = size_t{1} << 16;

class Mutator {
 public:
  Mutator(const std::vector<std::string>& corpus, std::mt19937_64& random) : corpus_(corpus), random_(random) {}

  std::string run() {
    text_ = any();
    for (size_t changes = size_t{1} << below(5); changes > 0; --changes) change();
    if (text_.size() > bytes_max) text_.resize(bytes_max);
    return std::move(text_);
  }

 private:
  size_t below(size_t end) { return end == 0 ? 0 : static_cast<size_t>(random_() % end); }
  const std::string& any() { return corpus_[below(corpus_.size())]; }
  size_t place() { return below(text_.size() + 1); }
  size_t length(size_t most) { return std::min(most, below(2) == 0 ? below(9) : below(most + 1)); }

  void change() {
    const size_t at = place();
    switch (below(11)) {
      case 0:
        if (at < text_.size()) text_[at] = static_cast<char>(random_());
        break;
      case 1:
        if (at < text_.size()) text_[at] = static_cast<char>(text_[at] ^ 1 << below(8));
        break;
      case 2:
        text_.erase(at, length(text_.size() - at));
        break;
      case 3:
        text_.insert(at, part(text_));
        break;
      case 4:
        text_.insert(at, part(any()));
        break;
      case 5:
        whole_number(at);
        break;
      case 6:
        decimal_number(at);
        break;
      case 7:
        text_.insert(at, words_[below(std::size(words_))]);
        break;
      case 8:
        repeat(at);
        break;
      case 9:
        text_.replace(at, length(text_.size() - at), part(any()));
        break;
      default:
        swap_parts();
    }
  }

  std::string part(const std::string& text) {
    const size_t begin = below(text.size() + 1);
    return text.substr(begin, length(text.size() - begin));
  }
  /// A length, offset or number of binary formats.
  void whole_number(size_t at) {
    constexpr uint64_t edges[] = {0,          1,          0x7f,       0x80,       0xff,      0x7fff,     0xffff,
                                  0x7fffffff, 0x80000000, 0xffffffff, 1ull << 40, INT64_MAX, 1ull << 63, UINT64_MAX};
    const size_t bytes = size_t{1} << below(4);
    if (at + bytes > text_.size()) return;
    uint64_t value = 0;
    std::memcpy(&value, text_.data() + at, bytes);
    value = below(2) == 0 ? edges[below(std::size(edges))] : value + below(33) - 16;
    std::memcpy(text_.data() + at, &value, bytes);
  }
  /// A number of text formats.
  void decimal_number(size_t at) {
    constexpr std::string_view digits = "0123456789", edges[] = {"-1",
                                                                 "0",
                                                                 "1e999",
                                                                 "-0.0",
                                                                 "1e-400",
                                                                 "NaN",
                                                                 "18446744073709551616",
                                                                 "9223372036854775808",
                                                                 "-9223372036854775808",
                                                                 "4294967296",
                                                                 "2147483648",
                                                                 "0.1"};
    at = text_.find_first_of(digits, at);
    if (at == text_.npos) return;
    const size_t end = std::min(text_.find_first_not_of(digits, at), text_.size());
    text_.replace(at, end - at, edges[below(std::size(edges))]);
  }
  /// Often enough to exhaust a stack or to take time by the square of it; brackets are closed again in half of the cases.
  void repeat(size_t at) {
    const auto piece = below(2) == 0 ? std::string(words_[below(std::size(words_))])
                                     : text_.substr(at, 1 + length(std::min<size_t>(16, text_.size() - at)));
    if (piece.empty()) return;
    const size_t count = std::min<size_t>(size_t{1} << below(16), bytes_max / piece.size());
    std::string many, closed;
    for (size_t i = 0; i < count; ++i) many += piece;
    constexpr std::string_view open = "[({", close = "])}";
    if (const auto kind = open.find(piece[0]); kind != open.npos && below(2) == 0) closed.assign(count, close[kind]);
    text_.insert(std::min(at, text_.size()), many + closed);
  }
  void swap_parts() {
    if (text_.size() < 4) return;
    const size_t size = 1 + below(text_.size() / 4), a = below(text_.size() - 2 * size),
                 b = a + size + below(text_.size() - a - 2 * size);
    std::swap_ranges(text_.begin() + static_cast<ptrdiff_t>(a), text_.begin() + static_cast<ptrdiff_t>(a + size),
                     text_.begin() + static_cast<ptrdiff_t>(b));
  }

  static constexpr std::string_view words_[] = {"[",
                                                "{\"a\":",
                                                "(",
                                                "{",
                                                "]",
                                                "}",
                                                "null",
                                                "true",
                                                "\"\"",
                                                "\"",
                                                "\\",
                                                "\n",
                                                "\r\n",
                                                ",",
                                                ";",
                                                ":",
                                                "\t",
                                                "\xff",
                                                "\xf0",
                                                "\xed\xa0\x80",
                                                "\u0301",
                                                "\U0001f600",
                                                "../",
                                                "/",
                                                "{{",
                                                "}}",
                                                "{%",
                                                "%}",
                                                "-",
                                                "|",
                                                "_",
                                                "'",
                                                "$",
                                                "%s",
                                                "${env:HOME}",
                                                " = ",
                                                "[[",
                                                "#",
                                                "\xff\xd8\xff",
                                                "IDAT",
                                                "PAR1",
                                                std::string_view("\0\0\0\0", 4)};
  const std::vector<std::string>& corpus_;
  std::mt19937_64& random_;
  std::string text_;
};

}  // namespace

std::string mutated(const std::vector<std::string>& corpus, std::mt19937_64& random) {
  return Mutator(corpus, random).run();
}

}  // namespace runner::fuzz
