// The vocabulary in a GGUF file's metadata as parts of a tokenizer.json. Torch-free.
#pragma once
#include "runner/pretrained/gguf_metadata.hpp"

namespace runner {

/// Values of tokenizer.ggml.token_type.
enum class TokenType : int64_t { normal = 1, unknown, control, user_defined, unused, byte };

/// tokenizer.ggml.tokens. Throws Error(usage), as the functions below.
std::vector<std::string> tokens_of(const GgufMetadata& metadata);
/// The types of all tokens.
std::vector<TokenType> token_types_of(const GgufMetadata& metadata, size_t tokens);
/// The text of the token that tokenizer.ggml.ROLE_token_id names; empty if there is none.
std::string named_token(const GgufMetadata& metadata, const std::vector<std::string>& tokens, const char* role);
/// {"token": id, ...}
nlohmann::json vocabulary_json(const GgufMetadata& metadata, const std::vector<std::string>& tokens);
/// The tokens that are found in a text before it is cut into words: control tokens and those of users.
nlohmann::json added_tokens(const GgufMetadata& metadata, const std::vector<std::string>& tokens);
/// The post-processor that puts BOS before a text and EOS behind it; null if there is neither. `bos`: whether BOS is added if the
/// metadata do not say.
nlohmann::json special_tokens_around(const GgufMetadata& metadata, const std::vector<std::string>& tokens,
                                     const nlohmann::json& vocabulary, bool bos);

/// tokenizer.json of a tokenizer "llama": pieces with scores, as in a SentencePiece model of type BPE.
nlohmann::json sentencepiece_tokenizer(const GgufMetadata& metadata);

}  // namespace runner
