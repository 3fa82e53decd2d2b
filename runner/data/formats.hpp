// The kinds of data behind open_dataset(), one file each: how a split's files become a token stream.
#pragma once
#include <string>
#include <vector>

#include "runner/data/data.hpp"
#include "runner/data/token_stream.hpp"

namespace runner {

/// What a kind of data opens.
struct Source {
  const Recipe::Data& data;
  const std::vector<std::string>& files;  ///< exist, and none is empty
  int64_t vocab_size;                     ///< ids from here on are refused
  const std::string& cache_dir;
};

/// UTF-8 text: its bytes are the tokens, or a SentencePiece model's tokens of it are, from the cache.
std::unique_ptr<TokenStream> open_text(const Source& source);
/// Files of tokens: raw uint16 or uint32 (data.token_dtype), or with llm.c's header.
std::unique_ptr<TokenStream> open_bin(const Source& source);

/// A headerless file of `item_bytes` wide tokens, each checked against `vocab_size`.
std::unique_ptr<TokenFile> open_raw_tokens(const fs::path& path, size_t item_bytes, int64_t vocab_size);

}  // namespace runner
