// The normalizers of tokenizer.json.
#pragma once
#include <memory>

#include "runner/tokenizers/draft.hpp"
#include "runner/tokenizers/json_place.hpp"
#include "runner/tokenizers/regex.hpp"

namespace runner {

/// The memory that one thread needs to normalise and cut text.
struct DraftSpace {
  std::vector<unicode::Change> changes, more;
  std::string text;
  std::vector<TextPiece> pieces, cut;
  PatternTime pattern_time;  ///< of the text, for the expressions of all components
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// `continues`: the text follows another part of the document.
  virtual void apply(Draft& draft, DraftSpace& space, bool continues) const = 0;
  /// Whether the normalised text is that of the two parts, if the text is cut between a letter of ASCII and a space before another
  /// such letter. `space` is what the space has become.
  virtual bool cuts_at_space(char32_t& space) const = 0;
  /// Whether the normalised text is that of the two parts, if the text is cut behind a line end between two characters that are not white
  /// space.
  virtual bool cuts_at_line() const { return false; }
  /// Whether the first character always has the place of the original's first character.
  virtual bool keeps_start() const { return false; }
};

/// nullptr: null. Throws Error(usage) with the place of a mistake, or of a component that is not supported.
std::unique_ptr<Normalizer> read_normalizer(const JsonPlace& normalizer);
std::unique_ptr<Normalizer> read_precompiled(const JsonPlace& normalizer);

/// {"String": ...} or {"Regex": ...}, in Split and Replace.
class TextPattern {
 public:
  explicit TextPattern(const JsonPlace& pattern);
  /// Calls part(begin, end, is_match) for the matches and for the text between them.
  template <typename Part>
  void split(std::string_view text, PatternTime& time, Part&& part) const {
    if (regex_) {
      regex_->split(text, time, part);
      return;
    }
    size_t last = 0;
    for (size_t at = text.find(literal_); at != std::string_view::npos; at = text.find(literal_, last)) {
      if (last != at) part(last, at, false);
      last = at + literal_.size();
      part(at, last, true);
    }
    if (last != text.size()) part(last, text.size(), false);
  }
  bool is_regex() const { return regex_ != nullptr; }
  const std::string& source() const { return source_; }

 private:
  std::string source_, literal_;
  std::shared_ptr<Regex> regex_;
};

}  // namespace runner
