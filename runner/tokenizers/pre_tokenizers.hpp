// The pre-tokenizers of tokenizer.json: they cut text into words.
#pragma once
#include <memory>

#include "runner/tokenizers/normalizers.hpp"

namespace runner {

/// A place where a document could be cut (Tokenizer::safe_split).
struct CutPlace {
  char32_t space = ' ';        ///< between letters of ASCII, and the cut is before it: what the space has become
  bool between_words = false;  ///< whether a component cuts here in any case
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Cuts `space.pieces`, and may change their text. `continues`: the first piece follows another part of the document.
  virtual void apply(Draft& draft, DraftSpace& space, bool continues) const = 0;
  /// Whether the words are those of the two parts, if the text is cut before a space between two letters of ASCII.
  virtual bool cuts_at_space(CutPlace& place) const = 0;
  /// Whether the words are those of the two parts, if the text is cut behind a line end between two characters of which neither is white
  /// space and the second is not `/`.
  virtual bool cuts_at_line(CutPlace& place) const = 0;
  /// Whether apply() looks at TextPiece::origin.
  virtual bool needs_origin() const { return false; }
  /// Whether the last component is ByteLevel, which writes bytes as characters; and makes it leave the bytes to the model.
  virtual bool ends_with_bytes() const { return false; }
  virtual void leave_bytes() {}
};

/// nullptr: null. Throws Error(usage) with the place of a mistake, or of a component that is not supported.
std::unique_ptr<PreTokenizer> read_pre_tokenizer(const JsonPlace& pre_tokenizer);

/// GPT-2's expression for words, which ByteLevel uses.
extern const char* const gpt2_words;

/// The treatment of the text that separates words.
enum class Separator { removed, isolated, merged_with_previous, merged_with_next, contiguous };
Separator separator_of(const JsonPlace& behavior);
struct Match {
  size_t begin, end;
  bool is_match;
};
/// Appends the parts of `piece` to `out`; the matches cover it, relative to the draft.
void cut(const Draft& draft, std::vector<Match>& matches, Separator separator, std::vector<TextPiece>& out);

std::unique_ptr<PreTokenizer> make_split(const JsonPlace& split);

}  // namespace runner
