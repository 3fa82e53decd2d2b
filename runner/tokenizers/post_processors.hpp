// The post-processors of tokenizer.json: tokens around a text, and offsets without spaces.
#pragma once
#include <memory>

#include "runner/tokenizers/json_place.hpp"
#include "runner/tokenizers/tokenizer.hpp"

namespace runner {

/// A token on its way to the result.
struct Encoded {
  Token token;
  uint32_t leading = 0, trailing = 0;  ///< white space of the token's text, in characters
};

class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  virtual void apply(std::string_view text, std::vector<Encoded>& tokens, bool add_special_tokens) const = 0;
  /// The ids that are added before and after a text.
  virtual void around(std::vector<int32_t>& before, std::vector<int32_t>& after) const = 0;
  /// Replaces the frame of the texts by that with added tokens. Throws Error(usage) if there is none for two texts.
  virtual void frame(bool pair, TokenFrame& parts) const = 0;
  /// Whether offsets change.
  virtual bool trims() const { return false; }
};

/// nullptr: null. Throws Error(usage) with the place of a mistake.
std::unique_ptr<PostProcessor> read_post_processor(const JsonPlace& post_processor);
/// Adds ids before and after a text; before and after each of two.
std::unique_ptr<PostProcessor> make_frame(std::vector<int32_t> before, std::vector<int32_t> after);

/// The texts without added tokens.
TokenFrame text_frame(bool pair);

/// Characters at both ends of a token's text that ByteLevel counts as white space.
void count_space(std::string_view token, uint32_t& leading, uint32_t& trailing);

}  // namespace runner
