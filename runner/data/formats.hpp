// The data formats of open_dataset(), one source file each. They turn the files of a split into a token stream.
#pragma once
#include <string>
#include <vector>

#include "runner/data/data.hpp"
#include "runner/data/token_stream.hpp"

namespace runner {

/// The data that a format opens.
struct Source {
  const Recipe::Data& data;
  const std::vector<std::string>& files;  ///< all exist, and none is empty
  int64_t vocab_size;                     ///< greater or equal ids are refused
  const std::string& cache_dir;
};

/// UTF-8 text. The tokens are its bytes, or tokens of a tokenizer from the cache.
std::unique_ptr<TokenStream> open_text(const Source& source);
/// Files of tokens: raw uint16 or uint32 (data.token_dtype), or with llm.c's header.
std::unique_ptr<TokenStream> open_bin(const Source& source);

/// A file without header. Tokens have `item_bytes` bytes and are checked against `vocab_size`.
std::unique_ptr<TokenFile> open_raw_tokens(const fs::path& path, size_t item_bytes, int64_t vocab_size);

}  // namespace runner
