// Tokenises text files once, in parallel, into token files of the cache.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runner/data/token_parts.hpp"
#include "runner/tokenizers/tokenizer.hpp"

namespace runner {

/// Bytes of a token in the cached file: 2 if the vocabulary allows it, otherwise 4.
inline size_t token_bytes(int64_t vocab_size) { return vocab_size <= 65536 ? 2 : 4; }

/// The parts of text files, in order. Each file is a document: its tokens are those of its complete text, and there are no separators.
/// The names in the cache contain a hash of the tokenizer's bytes, of the file's path, size and modification time, and of the part.
/// make() throws Error(usage) if a part is not UTF-8.
std::unique_ptr<TokenParts> text_parts(const std::vector<std::string>& files,
                                       std::shared_ptr<const Tokenizer> tokenizer, const std::string& cache_dir,
                                       PartBytes part_bytes);

}  // namespace runner
