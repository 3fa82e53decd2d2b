// The text of tokens that arrive one after another, safe to print: no part of a character, and nothing of a stop text.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runner/tokenizers/tokenizer.hpp"

namespace runner {

/// Texts are what the tokens add to those before them: a tokenizer may decode the first token of a text in another way.
class TextStream {
 public:
  /// `before`: the tokens in front of the text; their text is not returned. `stop`: the text ends before one of them.
  TextStream(const Tokenizer& tokenizer, std::vector<int32_t> before, std::vector<std::string> stop);

  /// Returns the text that can be printed now. Characters that are not complete, and the beginning of a stop text, wait for the next
  /// token. After a stop text, nothing is returned.
  std::string push(int32_t token);
  /// The rest of the text: what waits is not the beginning of a stop text.
  std::string finish();
  bool stopped() const { return stopped_; }
  const std::string& text() const { return text_; }  ///< all that was returned

 private:
  std::string release(std::string text, bool all);

  const Tokenizer& tokenizer_;
  std::vector<int32_t> tokens_;
  size_t context_ = 0;  ///< the first token that is decoded with new ones
  size_t decoded_;      ///< tokens whose text was taken
  std::vector<std::string> stop_;
  std::string waiting_;  ///< taken, and may be the beginning of a stop text
  std::string text_;
  bool stopped_ = false;
};

/// The number of bytes of an incomplete character at the end of `text`.
size_t incomplete_utf8_tail(std::string_view text);

}  // namespace runner
