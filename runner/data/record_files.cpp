// The data formats of records ("jsonl", "parquet", "csv"): rows of columns, as documents of tokens from the cache.
#include <algorithm>
#include <thread>
#include <utility>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/data/formats.hpp"
#include "runner/data/record_reader.hpp"
#include "runner/data/source_files.hpp"
#include "runner/data/token_parts.hpp"

namespace runner {

namespace {

struct RecordPart {
  const Records* file;
  Records::Range range;
  std::string name;  ///< in the cache
};

std::vector<RecordPart> parts_of(const Records& file, const RecordReader& reader, size_t part_bytes) {
  const std::string identity = fmt::format("{} {}{}\n{}", targets_version, reader.settings().dump(),
                                           reader.tokenizer_hash(), fingerprint({file.path().string()}));
  std::vector<RecordPart> parts;
  for (const auto& range : file.parts(part_bytes))
    parts.push_back({.file = &file,
                     .range = range,
                     .name = fmt::format("documents-{}.tok",
                                         xxh3_hex(fmt::format("{}\n{}-{}", identity, range.begin, range.end)))});
  return parts;
}

/// The bytes of the file up to `position` of its ranges.
size_t bytes_up_to(const Records& file, size_t position) {
  return static_cast<size_t>(static_cast<double>(position) * static_cast<double>(file.bytes()) /
                             static_cast<double>(std::max<size_t>(1, file.size())));
}

void tokenize_records(const RecordPart& part, const RecordReader& reader, CacheWriter& out,
                      TokenizingProgress* progress) {
  DocumentWriter writer(out, token_bytes(reader.vocab_size()));
  size_t reported = bytes_up_to(*part.file, part.range.begin);
  int64_t tokens = 0;
  auto report = [&](size_t end) {
    const size_t done = bytes_up_to(*part.file, end);
    if (progress)
      progress->add(done - std::exchange(reported, done), writer.tokens() - std::exchange(tokens, writer.tokens()));
  };
  part.file->for_each(part.range, [&](const JsonRecord& record, size_t end) {
    if (progress) progress->go_on();
    for (const auto& document : reader.documents(record)) writer.add(document);
    constexpr size_t between_reports = 256 * 1024;
    if (bytes_up_to(*part.file, end) - reported >= between_reports) report(end);
    return true;
  });
  writer.finish();
  report(part.range.end);
}

class RecordParts final : public TokenParts {
 public:
  RecordParts(Recipe::Data data, const std::vector<std::string>& files, std::shared_ptr<const RecordReader> reader,
              std::string cache_dir, PartBytes part_bytes)
      : data_(std::move(data)), reader_(std::move(reader)), cache_dir_(std::move(cache_dir)) {
    size_t all = 0;
    for (const auto& file : files) all += files_.emplace_back(open_records(data_, file))->bytes();
    for (const auto& file : files_)
      std::ranges::move(parts_of(*file, *reader_, part_bytes(all)), std::back_inserter(parts_));
  }
  size_t count() const override { return parts_.size(); }
  size_t bytes(size_t part) const override {
    const auto& [file, range, name] = parts_[part];
    return bytes_up_to(*file, range.end) - bytes_up_to(*file, range.begin);
  }
  size_t threads() const override { return std::max(1u, std::thread::hardware_concurrency()); }
  fs::path make(size_t index, TokenizingProgress* progress) const override {
    bool cached = true;
    const auto fill = [&](CacheWriter& out) {
      cached = false;
      tokenize_records(parts_[index], *reader_, out, progress);
    };
    const auto file = make_once(cache_dir_, parts_[index].name, fill, /*quiet=*/!progress);
    if (progress && cached) progress->skip(bytes(index));
    return file;
  }

 private:
  Recipe::Data data_;  ///< files of plug-ins refer to it
  std::shared_ptr<const RecordReader> reader_;
  std::string cache_dir_;
  std::vector<std::unique_ptr<Records>> files_;
  std::vector<RecordPart> parts_;
};

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

std::unique_ptr<TokenParts> record_parts(const Recipe::Data& data, const std::vector<std::string>& files,
                                         std::shared_ptr<const RecordReader> reader, const std::string& cache_dir,
                                         PartBytes part_bytes) {
  return std::make_unique<RecordParts>(data, files, std::move(reader), cache_dir, part_bytes);
}

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
