// Regular expressions of tokenizer.json: the syntax of Oniguruma, matched with PCRE2. They have at most pattern_bytes_max, groups are at
// most 250 deep, a match that begins at one place takes at most pattern_steps_max, and all searches in one text take at most
// pattern_seconds_max and pattern_seconds_per_byte (limits.hpp).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runner/tokenizers/unicode.hpp"

namespace runner {

/// The expression in the syntax of PCRE2. White space, word characters, scripts and anchors mean what they mean in Oniguruma (\s does not
/// match U+180E, ^ and $ are for lines). Throws std::invalid_argument with the construct and its offset if it has no equivalent.
std::string pcre_of(std::string_view oniguruma);

/// The processor time of a thread for one text, between its first and its last search. Errors name the expressions by `subject`.
class PatternTime {
 public:
  explicit PatternTime(size_t text_bytes = 0, const char* subject = "a regular expression of the tokenizer")
      : bytes_(text_bytes), subject_(subject) {}
  const char* subject() const { return subject_; }
  /// Counts a search. After a few searches, or after one that was slow, looks at the clock. Throws Error(environment) if the time is over.
  void spend(bool slow) {
    if (++searches_ % searches_between_looks == 0 || slow) look();
  }

 private:
  static constexpr unsigned searches_between_looks = 256;
  void look();
  size_t bytes_;
  const char* subject_;
  unsigned searches_ = 0;
  std::optional<double> since_ = {};
};

class Regex {
 public:
  /// Throws std::invalid_argument that says what is wrong, and where.
  explicit Regex(std::string_view oniguruma);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// The first match at or after `from`. Throws Error(environment) if the expression needs too many steps, or all of `time`. Safe to call
  /// from several threads.
  bool find(std::string_view text, size_t from, size_t& begin, size_t& end, PatternTime& time) const;
  /// Calls `part(begin, end, is_match)` for each match and for each text between matches. `time`: that of the text that
  /// `text` is a part of.
  template <typename Part>
  void split(std::string_view text, PatternTime& time, Part&& part) const {
    size_t last = 0, from = 0, begin = 0, end = 0, previous_end = std::string_view::npos;
    while (from <= text.size() && find(text, from, begin, end, time)) {
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
  /// A match that begins between `from` and `last`: PCRE2's result.
  int search(std::string_view text, size_t from, size_t last, uint32_t steps) const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace runner
