// Regular expressions of tokenizer.json: the syntax of Oniguruma, matched with PCRE2. They have at most pattern_bytes_max, groups are at
// most 250 deep, and a search takes at most pattern_steps_max (limits.hpp).
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "runner/tokenizers/unicode.hpp"

namespace runner {

/// The same expression for PCRE2. White space, word characters, scripts and anchors mean what they mean in Oniguruma (\s does not
/// match U+180E, ^ and $ are for lines). Throws std::invalid_argument with the construct and its offset if it has no equivalent.
std::string pcre_of(std::string_view oniguruma);

class Regex {
 public:
  /// Throws std::invalid_argument that says what is wrong, and where.
  explicit Regex(std::string_view oniguruma);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// The first match at or after `from`. Throws Error(environment) if the expression needs too many steps. Safe to call from several
  /// threads.
  bool find(std::string_view text, size_t from, size_t& begin, size_t& end) const;
  /// Calls `part(begin, end, is_match)` for each match and for each text between matches.
  template <typename Part>
  void split(std::string_view text, Part&& part) const {
    size_t last = 0, from = 0, begin = 0, end = 0, previous_end = std::string_view::npos;
    while (from <= text.size() && find(text, from, begin, end)) {
      if (begin == end && end == previous_end) {  // an empty match directly after a match does not count
        from += from < text.size() ? unicode::length_of(text[from]) : 1;
        continue;
      }
      if (last != begin) part(last, begin, false);
      part(begin, end, true);
      last = from = previous_end = end;
    }
    if (last != text.size()) part(last, text.size(), false);
  }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace runner
