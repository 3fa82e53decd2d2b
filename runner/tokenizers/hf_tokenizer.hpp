// Tokenizers of Hugging Face: tokenizer.json, with tokenizer_config.json and special_tokens_map.json beside it.
// The ids, offsets and texts are those of the tokenizers library (Python's wheel of version 0.21). See README.md for what is
// supported, and for the differences. A file has at most tokenizer_bytes_max and json_depth_max, and a token token_bytes_max (limits.hpp);
// see regex.hpp for expressions.
#pragma once
#include "runner/tokenizers/tokenizer.hpp"

namespace runner {

class TokenModel;

class HfTokenizer final : public Tokenizer {
 public:
  /// Reads a file of the format of tokenizer.json. In the folder of a file with this name, tokenizer_config.json and
  /// special_tokens_map.json name the special tokens. Throws Error(usage) with file and JSON pointer, or Error(environment).
  /// `truncation` and `padding` are ignored: whoever makes batches decides about lengths.
  explicit HfTokenizer(const fs::path& file);
  /// Byte-level BPE with an expression for words, e.g. of a tiktoken file: `ids` and `tokens` of special tokens are cut out of the text
  /// first.
  struct Parts {
    std::unique_ptr<TokenModel> model;
    std::string expression;
    bool nfc = false;  ///< the text is brought to this normal form first
    std::vector<std::pair<std::string, int32_t>> special;
    SpecialTokens roles;
    std::vector<int32_t> before;  ///< with add_special_tokens
    std::string hash;
    std::vector<File> files;
  };
  explicit HfTokenizer(Parts parts);
  ~HfTokenizer() override;

  int64_t vocab_size() const override;
  /// Throws Error(usage) if the text is not UTF-8, or if it has unknown text and the model has no token for it.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens = false) const override;
  /// The library counts characters; here are bytes of the original text. Tokens of parts of a character have all of its bytes. Text
  /// that a normalizer added belongs to the character before it, at the beginning to the first one. `trim_offsets` is ignored: tokens of
  /// white space have its bytes.
  TokenFrame frame(bool pair) const override;
  std::vector<Token> encode_with_offsets(std::string_view text, bool add_special_tokens = false) const override;
  std::string decode(std::span<const int32_t> tokens, bool skip_special_tokens = false) const override;
  std::optional<int32_t> token_to_id(std::string_view token) const override;
  std::optional<std::string> id_to_token(int32_t id) const override;
  SpecialTokens special_tokens() const override;
  bool is_special(int32_t id) const override;
  /// Before a space between letters, or behind a line end, if all components are known to cut there.
  std::optional<size_t> safe_split(std::string_view text, size_t at_most) const override;
  std::vector<int32_t> encode_continuation(std::string_view text) const override;
  const std::string& hash() const override;
  std::vector<File> files() const override;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

/// Whether a file begins like a tiktoken file.
bool looks_like_tiktoken(std::string_view content);
/// Opens a tiktoken file: one token a line, as Base64 of its bytes and its rank. Expression and special tokens are known by the number of
/// tokens: GPT-2 (50256), cl100k (100256), Llama 3 (128000), Qwen (151643), o200k (199998). `expression` is for other files, which then
/// have no special tokens. The merges of a token are all its cuts into two tokens, in the order of the parts' ranks
/// (convert_slow_tokenizer.py of transformers does the same). Throws Error(usage) with file and line.
std::unique_ptr<Tokenizer> open_tiktoken(const fs::path& file, const std::string& expression = "");

/// Opens a SentencePiece model (unigram or BPE) of at most tokenizer_bytes_max. The model may add a space in front of a
/// text, which encode_continuation() omits, and normalise it; with `add_special_tokens` the model's BOS precedes the
/// text, if it has one. A document is cut after a line end, or between words. Throws Error(usage) if the file is not
/// such a model, and Error(environment) if it cannot be read.
std::unique_ptr<Tokenizer> open_sentencepiece(const fs::path& model);

/// Opens the tokenizer of a file or folder by its content: tokenizer.json, a tiktoken file, a SentencePiece model or a GGUF file; in a
/// folder, the first of tokenizer.json, tokenizer.model and *.tiktoken. Throws Error(usage) that begins with the path.
std::unique_ptr<Tokenizer> open_tokenizer_file(const fs::path& path);
/// The file that open_tokenizer_file() opens; of a GGUF file, a path that model_files.hpp reads. Throws Error(usage) if there is none.
fs::path tokenizer_file(const fs::path& path);
/// The Tokenizer::files() of the tokenizer, without reading it completely. The first one's content is what Tokenizer::hash() is of.
std::vector<Tokenizer::File> tokenizer_files(const fs::path& path);

}  // namespace runner
