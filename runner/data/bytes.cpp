// The tokenizer "bytes": each of the 256 bytes is a token.
#include "runner/base/error.hpp"
#include "runner/data/tokenizers.hpp"

namespace runner {

namespace {

class BytesTokenizer final : public Tokenizer {
 public:
  int64_t vocab_size() const override { return bytes_vocab_size; }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> tokens;
    tokens.reserve(text.size());
    for (char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  std::string decode(std::span<const int32_t> tokens) const override {
    std::string text;
    text.reserve(tokens.size());
    for (int32_t token : tokens) {
      if (token < 0 || token >= bytes_vocab_size)
        throw usage_error("token {} is not a byte: the tokenizer \"bytes\" has tokens 0 to 255", token);
      text += static_cast<char>(token);
    }
    return text;
  }
};

}  // namespace

std::unique_ptr<Tokenizer> make_bytes_tokenizer() { return std::make_unique<BytesTokenizer>(); }

}  // namespace runner
