// The interface of all tokenizers: text to ids and back, with the place of each token in the text. Torch-free.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runner/base/files.hpp"

namespace runner {

/// A token of an encoded text. It stands for bytes [begin, end) of the text; tokens of one character may all have the bytes of this
/// character. A space that the tokenizer writes before the text may have none.
struct Token {
  int32_t id = 0;
  size_t begin = 0, end = 0;
  bool added = false;  ///< not of the text: a BOS or EOS that encode() puts around it
  bool operator==(const Token&) const = default;
};

/// The ids of tokens with a role; nullopt: the tokenizer has no such token.
struct SpecialTokens {
  std::optional<int32_t> bos = {}, eos = {}, pad = {}, unk = {}, mask = {};
};

/// A part of what a tokenizer makes of a text or of two: the place of a text, or a token that it adds.
struct FramePart {
  enum class Kind { token, first_text, second_text };
  Kind kind = Kind::token;
  int32_t id = 0;    ///< of a token
  int32_t type = 0;  ///< token type of these tokens: BERT's segment
  bool operator==(const FramePart&) const = default;
};
using TokenFrame = std::vector<FramePart>;

/// All functions are safe to call from several threads. Texts are UTF-8.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// The number that is greater than every id.
  virtual int64_t vocab_size() const = 0;
  /// The ids of a text. `add_special_tokens` adds those that the tokenizer puts around a text, for example a BOS.
  virtual std::vector<int32_t> encode(std::string_view text, bool add_special_tokens = false) const = 0;
  /// The ids of encode() with the bytes that they stand for.
  virtual std::vector<Token> encode_with_offsets(std::string_view text, bool add_special_tokens = false) const = 0;
  /// Where a text, or with `pair` two texts, and added tokens are in the input of a model: "[CLS] first [SEP] second [SEP]". Throws
  /// Error(usage) if the tokenizer has no rule for two texts. Without an own rule: the tokens of encode("", true), then the texts.
  virtual TokenFrame frame(bool pair) const;
  /// Throws Error(usage) for an id that is not in the vocabulary.
  virtual std::string decode(std::span<const int32_t> tokens, bool skip_special_tokens = false) const = 0;

  /// The id of a token's text as the vocabulary spells it; special tokens included.
  virtual std::optional<int32_t> token_to_id(std::string_view token) const = 0;
  virtual std::optional<std::string> id_to_token(int32_t id) const = 0;
  virtual SpecialTokens special_tokens() const = 0;
  /// Whether decode() leaves the token out with skip_special_tokens.
  virtual bool is_special(int32_t id) const = 0;

  /// A document may be encoded in parts: the ids of `text` are encode(the first safe_split() bytes), followed by
  /// encode_continuation(the rest). The rest may be split again by the same rule. Returns a number of bytes in (0, at_most], or
  /// text.size() if that is not greater than at_most; nullopt: no such place is known, which a greater `at_most` may change. Longer
  /// parts are found first.
  virtual std::optional<size_t> safe_split(std::string_view text, size_t at_most) const = 0;
  /// The ids of a part of a document that follows another part.
  virtual std::vector<int32_t> encode_continuation(std::string_view text) const = 0;

  /// xxh3_hex() of the content of the files that determine ids; the name of a tokenizer without files.
  virtual const std::string& hash() const = 0;
  /// The files from which another program opens the same tokenizer. They may be copied under the given names; read_model_file() reads
  /// them.
  struct File {
    fs::path path;
    std::string name;
  };
  virtual std::vector<File> files() const { return {}; }
};

constexpr int64_t bytes_vocab_size = 256;
/// Token = byte. It has no special tokens.
std::unique_ptr<Tokenizer> make_bytes_tokenizer();

}  // namespace runner
