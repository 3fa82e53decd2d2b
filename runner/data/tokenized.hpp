// Text files turned into a token file once, in parts, and kept in the cache.
#pragma once
#include <string>
#include <vector>

#include "runner/data/tokenizers.hpp"

namespace runner {

/// Bytes of a token in the cached file: 2 where the vocabulary allows, else 4.
inline size_t token_bytes(int64_t vocab_size) { return vocab_size <= 65536 ? 2 : 4; }

/// The cached tokens of `files` as one stream, made now if they are not there. Each file is a document: its tokens are
/// those that the tokenizer gives for the whole of it, nothing is put between two. The name of the result hashes the
/// tokenizer's bytes and the files' paths, sizes and modification times. Throws Error(usage) if a file is not UTF-8.
fs::path tokenized_file(const std::vector<std::string>& files, const SentencePieceTokenizer& tokenizer,
                        const std::string& cache_dir);

}  // namespace runner
