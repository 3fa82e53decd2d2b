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
  const Records* file;
  Records::Range range;
  std::string name;  ///< in the cache
};

std::vector<RecordPart> record_parts(const Records& file, const RecordReader& reader) {
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

/// The bytes of the file up to `position` of its ranges.
size_t bytes_up_to(const Records& file, size_t position) {
  return static_cast<size_t>(static_cast<double>(position) * static_cast<double>(file.bytes()) /
                             static_cast<double>(std::max<size_t>(1, file.size())));
}

void tokenize_records(const RecordPart& part, const RecordReader& reader, CacheWriter& out,
                      TokenizingProgress& progress) {
  DocumentWriter writer(out, token_bytes(reader.vocab_size()));
  size_t reported = bytes_up_to(*part.file, part.range.begin);
  int64_t tokens = 0;
  auto report = [&](size_t end) {
    const size_t done = bytes_up_to(*part.file, end);
    progress.add(done - std::exchange(reported, done), writer.tokens() - std::exchange(tokens, writer.tokens()));
  };
  part.file->for_each(part.range, [&](const JsonRecord& record, size_t end) {
    for (const auto& document : reader.documents(record)) writer.add(document);
    constexpr size_t between_reports = 256 * 1024;
    if (bytes_up_to(*part.file, end) - reported >= between_reports) report(end);
    return true;
  });
  writer.finish();
  report(part.range.end);
}

}  // namespace

std::vector<fs::path> document_files(const Recipe::Data& data, const std::vector<std::string>& files,
                                     const RecordReader& reader, const std::string& cache_dir) {
  std::vector<std::unique_ptr<Records>> opened;
  std::vector<RecordPart> parts;
  size_t total_bytes = 0;
  for (const auto& file : files) {
    opened.push_back(open_records(data, file));
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
    if (cached) progress.skip(bytes_up_to(*part.file, part.range.end) - bytes_up_to(*part.file, part.range.begin));
  });
  progress.finish();
  return made;
}

}  // namespace runner
