// Tokenises text files once, in parallel parts, into a token file of the cache.
#pragma once
#include <string>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/tokenizers/tokenizer.hpp"

namespace runner {

/// Bytes of a token in the cached file: 2 if the vocabulary allows it, otherwise 4.
inline size_t token_bytes(int64_t vocab_size) { return vocab_size <= 65536 ? 2 : 4; }

/// The path of the cached tokens of `files`; tokenises the files if the path does not exist. Each file is a document: its tokens
/// are those of its complete text, and there are no separators. The file name contains a hash of the tokenizer's bytes and of the
/// files' paths, sizes and modification times. Throws Error(usage) if a file is not UTF-8.
fs::path tokenized_file(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                        const std::string& cache_dir);

}  // namespace runner
