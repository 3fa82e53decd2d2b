// The data formats of open_dataset(), one source file each. They turn the files of a split into tokens.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/data/data.hpp"
#include "runner/data/token_parts.hpp"
#include "runner/data/token_stream.hpp"

namespace runner {

/// Where the documents of a token stream end, and how many targets each has.
struct DocumentIndex {
  std::vector<int64_t> ends;     ///< the position behind the last token of each document
  std::vector<int32_t> targets;  ///< supervised tokens of each that have a token before them

  int64_t size() const { return static_cast<int64_t>(ends.size()); }
  int64_t begin(int64_t document) const { return document == 0 ? 0 : ends[static_cast<size_t>(document - 1)]; }
  int64_t end(int64_t document) const { return ends[static_cast<size_t>(document)]; }
};

/// The data that a format opens.
struct Source {
  const Recipe::Data& data;
  const std::vector<std::string>& files;  ///< all exist, and none is empty
  int64_t vocab_size;                     ///< greater or equal ids are refused
  const std::string& cache_dir;
};

/// The tokens of a split's files, and where its documents end.
struct OpenData {
  std::shared_ptr<const TokenStream> stream;
  std::optional<DocumentIndex> documents = {};  ///< unset: the stream is cut into samples of equal length
};

/// A part of streamed data: some of its first tokens belong to samples of the parts before, and its last tokens may be too few for a
/// sample.
struct StreamedPart {
  int64_t begin = 0;  ///< of the tokens that no sample has yet
  int64_t used = 0;   ///< result: behind the last token of the last sample; the next part continues here
};

/// Data whose tokens are in the cache, in parts.
struct DataParts {
  /// Opens some files of the cache, joined.
  std::function<OpenData(const std::vector<fs::path>& parts)> open;
  std::shared_ptr<const TokenParts> files;
};

/// UTF-8 text. The tokens are its bytes, or tokens of a tokenizer from the cache.
OpenData open_text(const Source& source);
/// Text whose tokens are not its bytes.
DataParts parts_of_text(const Source& source, PartBytes part_bytes);
/// Files of tokens: raw uint16 or uint32 (data.token_dtype), or with llm.c's header.
OpenData open_bin(const Source& source);

/// Records (data.layout) as JSON, one per line or in one array, or as rows of Parquet or CSV files; from the cache. Of texts with labels,
/// a document is the text without tokens around it; two texts are two documents.
OpenData open_record_files(const Source& source);
DataParts parts_of_records(const Source& source, PartBytes part_bytes);

/// Bytes of a token in the cached file: 2 if the vocabulary allows it, otherwise 4.
inline size_t token_bytes(int64_t vocab_size) { return vocab_size <= 65536 ? 2 : 4; }

/// The parts of text files, in order. Each file is a document: its tokens are those of its complete text, and there are no separators.
/// The names in the cache contain a hash of the tokenizer's bytes, of the file's path, size and modification time, and of the part.
/// make() throws Error(usage) if a part is not UTF-8.
std::unique_ptr<TokenParts> text_parts(const std::vector<std::string>& files,
                                       std::shared_ptr<const Tokenizer> tokenizer, const std::string& cache_dir,
                                       PartBytes part_bytes);

/// Throws Error(usage) if the tokenizer has more tokens than the model's vocabulary.
void check_vocab_size(const Source& source, int64_t tokenizer_vocab_size);
/// A file without header. Tokens have `item_bytes` bytes and are checked against `vocab_size`.
std::unique_ptr<TokenFile> open_raw_tokens(const fs::path& path, size_t item_bytes, int64_t vocab_size);

}  // namespace runner
