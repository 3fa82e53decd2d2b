// Tokenises text files once, in parallel, into token files of the cache.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/tokenizers/tokenizer.hpp"

namespace runner {

/// Bytes of a token in the cached file: 2 if the vocabulary allows it, otherwise 4.
inline size_t token_bytes(int64_t vocab_size) { return vocab_size <= 65536 ? 2 : 4; }

/// Bytes of a data file whose tokens are one file of the cache: at least 8 MiB, so that small data are few files, and about a
/// 256th of a large file, so that little is lost when tokenising is interrupted.
inline size_t cached_part_bytes(size_t file_bytes) { return std::max(size_t{8} << 20, file_bytes / 256); }

/// The cached tokens of `files`, in order; tokenises the parts that do not exist. Each file is a document: its tokens are those of
/// its complete text, and there are no separators. The names contain a hash of the tokenizer's bytes, of the file's path, size and
/// modification time, and of the part. Several processes may call this at once. Throws Error(usage) if a file is not UTF-8.
std::vector<fs::path> tokenized_files(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                                      const std::string& cache_dir);

}  // namespace runner
