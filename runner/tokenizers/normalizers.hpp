// The normalizers of tokenizer.json, and the text that they rewrite.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runner/tokenizers/json_place.hpp"
#include "runner/tokenizers/regex.hpp"
#include "runner/tokenizers/unicode.hpp"

namespace runner {

/// Bytes [begin, end) of the original text.
struct TextPlace {
  size_t begin = 0, end = 0;
};

/// A part of the text that is prepared by itself.
struct TextPiece {
  size_t begin = 0, end = 0;  ///< in Draft::text()
  size_t origin = 0;          ///< where the part began in the original when it was cut out
};

/// Text on its way from the original to the words of a model, with the bytes of the original that each byte stands for.
class Draft {
 public:
  /// Begins with a copy of bytes of the original, at `origin`. Without `tracked`, place() must not be called.
  void reset(std::string_view original, size_t origin, bool tracked);
  /// Begins with a copy of bytes [begin, end) of another draft. The other must not change while this one is in use.
  void take(const Draft& other, size_t begin, size_t end);
  std::string_view text() const { return text_; }
  bool tracked() const { return tracked_; }
  /// The bytes of the original that byte `i` stands for: always those of complete characters.
  TextPlace place(size_t i) const;
  /// Where the part that begins at byte `i` begins in the original. Without `tracked`, only whether it is the beginning.
  size_t origin_of(size_t i) const;
  TextPlace place(size_t begin, size_t end) const { return {place(begin).begin, place(end - 1).end}; }

  // Rewriting: start(), then copy() and transform() in the order of the text, then finish().
  void start();
  /// Bytes that stay.
  void copy(size_t begin, size_t end);
  /// Replaces bytes [begin, end) by `changes`, after leaving out the first `removed` characters. The places follow the tokenizers
  /// library: a character that is added has the place of the one before it, and one that is removed has none.
  void transform(const TextPiece& piece, std::span<const unicode::Change> changes, size_t removed = 0);
  /// Writes text in place of bytes that end at `end`, with the place of the last of them.
  void replace(const TextPiece& piece, size_t end, std::string_view content);
  size_t rewritten() const { return next_text_.size(); }
  void finish();
  /// Replaces the text by one of equal length, in which every character has its old length.
  void substitute(std::string_view same_length);

 private:
  std::string_view text_;  ///< of the original, or own_text_
  std::string own_text_, next_text_;
  std::vector<TextPlace> places_, next_places_;
  size_t origin_ = 0;
  bool tracked_ = false;
  bool literal_ = true;  ///< the places are those of a copy of the original
};

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
