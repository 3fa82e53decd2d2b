// Turns a record into a document: the text of its columns in tokens, and which tokens are supervised.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/data/document_file.hpp"
#include "runner/data/records.hpp"
#include "runner/data/token_parts.hpp"
#include "runner/tokenizers/tokenizer.hpp"

namespace runner {

/// Changes when the same records get other targets. Since 2, tokens of white space are learned also if the tokenizer trims their offsets.
constexpr int targets_version = 2;

class RecordReader {
 public:
  virtual ~RecordReader() = default;
  /// May be called from several threads. Throws Error(usage) with the place in the record and the reason; the caller adds file
  /// and line.
  virtual Document read(const JsonRecord& record) const = 0;
  /// The documents of a record, the same number for each: those of read(), or of two texts.
  virtual std::vector<Document> documents(const JsonRecord& record) const { return {read(record)}; }
  /// The texts whose tokens documents() has. Throws as read().
  virtual std::vector<std::string> texts(const JsonRecord& record) const = 0;
  /// The keys of the recipe, with the values in force, that determine the result of read() for a tokenizer: {"data.layout": "text"}.
  virtual nlohmann::json settings() const = 0;
  /// Tokenizer::hash().
  virtual const std::string& tokenizer_hash() const = 0;
  virtual int64_t vocab_size() const = 0;
  /// data.packing, or its default for the layout: "none", "best_fit" or "wrapped".
  virtual std::string packing() const = 0;
};

/// The reader for data.layout; "auto" is decided by the columns of the first record of `files`. Throws Error(usage) that begins with
/// a key of [data] or with file and line.
std::unique_ptr<RecordReader> make_record_reader(const Recipe::Data& data, const std::vector<std::string>& files,
                                                 const std::string& cache_dir);
/// The reader for data.layout with another tokenizer than that of `data`.
std::unique_ptr<RecordReader> make_record_reader(const Recipe::Data& data, const std::vector<std::string>& files,
                                                 std::unique_ptr<Tokenizer> tokenizer);

/// The parts of `files` of a format of records, in order. Memory is bounded by the marks of a part for each call of make(), which throws
/// Error(usage) for a bad record.
std::unique_ptr<TokenParts> record_parts(const Recipe::Data& data, const std::vector<std::string>& files,
                                         std::shared_ptr<const RecordReader> reader, const std::string& cache_dir,
                                         PartBytes part_bytes);

}  // namespace runner
