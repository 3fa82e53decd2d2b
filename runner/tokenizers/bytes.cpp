// The tokenizer "bytes": each of the 256 bytes is a token.
#include <fmt/format.h>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/tokenizers/first_chunk.hpp"
#include "runner/tokenizers/tokenizer.hpp"

namespace runner {

namespace {

/// The vocabulary spells bytes as `<0x0A>`, as SentencePiece does.
class BytesTokenizer final : public Tokenizer {
 public:
  int64_t vocab_size() const override { return bytes_vocab_size; }
  std::vector<int32_t> encode(std::string_view text, bool) const override {
    std::vector<int32_t> tokens;
    tokens.reserve(text.size());
    for (char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  std::vector<Token> encode_with_offsets(std::string_view text, bool) const override {
    std::vector<Token> tokens;
    tokens.reserve(text.size());
    for (size_t i = 0; i < text.size(); ++i) tokens.push_back({static_cast<unsigned char>(text[i]), i, i + 1});
    return tokens;
  }
  std::string decode(std::span<const int32_t> tokens, bool) const override {
    std::string text;
    text.reserve(tokens.size());
    for (int32_t token : tokens) {
      if (token < 0 || token >= bytes_vocab_size)
        throw usage_error("token {} is not a byte: the tokenizer \"bytes\" has tokens 0 to 255", token);
      text.push_back(static_cast<char>(token));
    }
    return text;
  }
  std::optional<int32_t> token_to_id(std::string_view token) const override {
    if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return {};
    auto byte = from_hex(lower(token.substr(3, 2)));
    return byte ? std::optional<int32_t>(static_cast<unsigned char>(byte->front())) : std::nullopt;
  }
  std::optional<std::string> id_to_token(int32_t id) const override {
    if (id < 0 || id >= bytes_vocab_size) return {};
    return fmt::format("<0x{:02X}>", id);
  }
  SpecialTokens special_tokens() const override { return {}; }
  bool is_special(int32_t) const override { return false; }
  std::optional<size_t> safe_split(std::string_view text, size_t at_most) const override {
    const size_t size = at_most < 4 ? 0 : first_chunk(text, at_most).size();
    return size > 0 ? std::optional(size) : std::nullopt;
  }
  std::vector<int32_t> encode_continuation(std::string_view text) const override { return encode(text, false); }
  const std::string& hash() const override {
    static const std::string name = "bytes";
    return name;
  }
};

}  // namespace

std::unique_ptr<Tokenizer> make_bytes_tokenizer() { return std::make_unique<BytesTokenizer>(); }

}  // namespace runner
