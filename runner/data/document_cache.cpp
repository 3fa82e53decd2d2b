#include "runner/data/document_cache.hpp"

#include <algorithm>
#include <utility>

#include "runner/base/error.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/data/parallel_for.hpp"
#include "runner/data/source_files.hpp"
#include "runner/data/tokenized.hpp"
#include "runner/data/tokenizing_progress.hpp"

namespace runner {

namespace {

struct RecordPart {
  const JsonRecords* file;
  JsonRecords::Range range;
  std::string name;  ///< in the cache
};

std::vector<RecordPart> record_parts(const JsonRecords& file, const RecordReader& reader) {
  const std::string identity =
      reader.settings().dump() + reader.tokenizer_hash() + "\n" + fingerprint({file.path().string()});
  std::vector<RecordPart> parts;
  for (const auto& range : file.parts(cached_part_bytes(file.bytes())))
    parts.push_back({.file = &file,
                     .range = range,
                     .name = fmt::format("documents-{}.tok",
                                         xxh3_hex(fmt::format("{}\n{}-{}", identity, range.begin, range.end)))});
  return parts;
}

void tokenize_records(const RecordPart& part, const RecordReader& reader, CacheWriter& out,
                      TokenizingProgress& progress) {
  DocumentWriter writer(out, token_bytes(reader.vocab_size()));
  size_t reported = part.range.begin;
  int64_t tokens = 0;
  auto report = [&](size_t done) {
    progress.add(done - std::exchange(reported, done), writer.tokens() - std::exchange(tokens, writer.tokens()));
  };
  part.file->for_each(part.range, [&](const JsonRecord& record, size_t end) {
    writer.add(reader.read(record));
    constexpr size_t between_reports = 256 * 1024;
    if (end - reported >= between_reports) report(end);
    return true;
  });
  writer.finish();
  report(part.range.end);
}

}  // namespace

std::vector<fs::path> document_files(const std::vector<std::string>& files, const RecordReader& reader,
                                     const std::string& cache_dir) {
  std::vector<std::unique_ptr<JsonRecords>> opened;
  std::vector<RecordPart> parts;
  size_t total_bytes = 0;
  for (const auto& file : files) {
    opened.push_back(std::make_unique<JsonRecords>(file));
    std::ranges::move(record_parts(*opened.back(), reader), std::back_inserter(parts));
    total_bytes += opened.back()->bytes();
  }
  TokenizingProgress progress(total_bytes);
  std::vector<fs::path> made(parts.size());
  parallel_for(parts.size(), [&](size_t i) {
    const RecordPart& part = parts[i];
    bool cached = true;
    made[i] = make_once(cache_dir, part.name, [&](CacheWriter& out) {
      cached = false;
      tokenize_records(part, reader, out, progress);
    });
    if (cached) progress.skip(part.range.end - part.range.begin);
  });
  progress.finish();
  return made;
}

}  // namespace runner
