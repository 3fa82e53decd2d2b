// The data formats of records ("jsonl", "parquet", "csv"): rows of columns, as documents of tokens from the cache.
#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/data/document_cache.hpp"
#include "runner/data/formats.hpp"
#include "runner/data/record_reader.hpp"

namespace runner {

namespace {

OpenData open_documents(const std::vector<fs::path>& paths, const RecordReader& reader) {
  std::vector<std::unique_ptr<TokenFile>> files;
  DocumentIndex documents;
  int64_t begin = 0;
  for (const auto& path : paths) {
    auto file = std::make_unique<DocumentFile>(path);
    for (int64_t end : file->ends()) documents.ends.push_back(begin + end);
    documents.targets.insert(documents.targets.end(), file->targets().begin(), file->targets().end());
    begin += file->size();
    files.push_back(std::move(file));
  }
  OpenData opened{.stream = std::make_shared<TokenStream>(std::move(files))};
  if (reader.packing() != "wrapped") opened.documents = std::move(documents);
  return opened;
}

}  // namespace

DataParts parts_of_records(const Source& source, PartBytes part_bytes) {
  std::shared_ptr<const RecordReader> reader = make_record_reader(source.data, source.files, source.cache_dir);
  check_vocab_size(source, reader->vocab_size());
  DataParts parts;
  parts.open = [reader](const std::vector<fs::path>& files) { return open_documents(files, *reader); };
  parts.files = record_parts(source.data, source.files, reader, source.cache_dir, part_bytes);
  return parts;
}

OpenData open_record_files(const Source& source) {
  const auto parts = parts_of_records(source, cached_part_bytes);
  if (parts.files->count() == 0) throw usage_error("{}: no record is in this file", join(source.files, ", "));
  return parts.open(make_parts(*parts.files));
}

}  // namespace runner
