// The tokenizers of make_tokenizer(), one source file each.
#pragma once
#include "runner/base/files.hpp"
#include "runner/data/data.hpp"

namespace runner {

constexpr int64_t bytes_vocab_size = 256;

/// Token = byte.
std::unique_ptr<Tokenizer> make_bytes_tokenizer();

/// A SentencePiece model (unigram or BPE).
class SentencePieceTokenizer final : public Tokenizer {
 public:
  /// Throws Error(usage) if the file is not a SentencePiece model.
  explicit SentencePieceTokenizer(const fs::path& model);
  ~SentencePieceTokenizer() override;
  int64_t vocab_size() const override;
  /// The model may add a space in front of the text, and normalise it.
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> tokens) const override;

  /// Encodes a part of a document that follows another part. Omits the space that many models add in front of a text,
  /// so that the tokens of the parts are those of the document (first_chunk() cuts documents into such parts).
  std::vector<int32_t> encode_continuation(std::string_view text) const;
  /// The token of text that the model does not know. Models with byte fallback do not produce it.
  int32_t unknown_token() const;
  /// xxh3_hex() of the model's bytes.
  const std::string& hash() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The file of open_sentencepiece().
fs::path sentencepiece_file(const Recipe::Data& data, const std::string& cache_dir);
/// The model that `data.tokenizer` names: a file, or for "sentencepiece" a model that is trained once on data.train and
/// cached in `cache_dir`.
std::unique_ptr<SentencePieceTokenizer> open_sentencepiece(const Recipe::Data& data, const std::string& cache_dir);

}  // namespace runner
