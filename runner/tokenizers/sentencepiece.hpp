// SentencePiece models (unigram or BPE) of at most tokenizer_bytes_max.
#pragma once
#include "runner/tokenizers/tokenizer.hpp"

namespace runner {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  /// Throws Error(usage) if the file is not a SentencePiece model, and Error(environment) if it cannot be read.
  explicit SentencePieceTokenizer(const fs::path& model);
  ~SentencePieceTokenizer() override;
  int64_t vocab_size() const override;
  /// The model may add a space in front of the text, and normalise it. With `add_special_tokens` the model's BOS
  /// precedes the text, if it has one.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens = false) const override;
  std::vector<Token> encode_with_offsets(std::string_view text, bool add_special_tokens = false) const override;
  std::string decode(std::span<const int32_t> tokens, bool skip_special_tokens = false) const override;
  std::optional<int32_t> token_to_id(std::string_view token) const override;
  std::optional<std::string> id_to_token(int32_t id) const override;
  SpecialTokens special_tokens() const override;
  bool is_special(int32_t id) const override;
  /// After a line end, or between words.
  std::optional<size_t> safe_split(std::string_view text, size_t at_most) const override;
  /// Omits the space that many models add in front of a text, so that the tokens of the parts are those of the document.
  std::vector<int32_t> encode_continuation(std::string_view text) const override;
  const std::string& hash() const override;
  std::vector<File> files() const override;  ///< tokenizer.model

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace runner
