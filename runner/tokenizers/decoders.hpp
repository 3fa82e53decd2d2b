// The decoders of tokenizer.json: they turn the texts of tokens into the text.
#pragma once
#include <memory>

#include "runner/tokenizers/json_place.hpp"

namespace runner {

class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

/// nullptr: null, which joins the tokens with spaces. Throws Error(usage) with the place of a mistake.
std::unique_ptr<TokenDecoder> read_decoder(const JsonPlace& decoder);

}  // namespace runner
