// Text on its way from the original to the words of a model, with the bytes of the original that each byte stands for.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace runner
