// The data format "text": UTF-8 files, as mapped bytes or as cached tokens.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "runner/base/error.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/base/utf8.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/data/cache.hpp"
#include "runner/data/formats.hpp"
#include "runner/data/parallel_for.hpp"
#include "runner/data/source_files.hpp"
#include "runner/data/tokenizers.hpp"
#include "runner/data/utf8.hpp"

namespace runner {

namespace {

/// Files that this process has found to be UTF-8, by fingerprint(). Several splits and checks open the same file.
class KnownTexts {
 public:
  bool contains(const std::string& state) {
    const std::lock_guard lock(mutex_);
    return states_.contains(state);
  }
  void add(const std::string& state) {
    const std::lock_guard lock(mutex_);
    states_.insert(state);
  }

 private:
  std::mutex mutex_;
  std::set<std::string> states_;
};

/// Another change of such a file might leave its fingerprint as it is.
bool changed_lately(const fs::path& path) {
  using namespace std::chrono_literals;
  return fs::file_time_type::clock::now() - fs::last_write_time(path) < 1s;
}

void check_whole_text(const fs::path& path, std::string_view text) {
  static KnownTexts known;
  const auto state = fingerprint({path.string()});
  if (known.contains(state)) return;
  const bool settled = !changed_lately(path);
  check_utf8(path, text, 0, text.size());
  if (settled) known.add(state);
}

/// A text file whose bytes are the tokens.
class TextFile final : public TokenFile {
 public:
  explicit TextFile(const fs::path& path) : TokenFile(path, 0, 1) {}

 private:
  void check(int64_t first, int64_t count) const override {
    if (first == 0 && count == size()) return check_whole_text(path(), text_of(map()));
    check_utf8(path(), text_of(map()), static_cast<size_t>(first), static_cast<size_t>(first + count));
  }
};

constexpr size_t chunk_bytes = 64 * 1024;

struct Chunk {
  std::string_view text;
  bool opens_document;
  std::vector<int32_t> tokens;
};

/// A part of a text file; its tokens are one file of the cache.
struct Part {
  const MappedFile* file;
  std::string_view text;
  bool opens_document;
  std::string name;  ///< in the cache
};

/// A text without a place to split it is encoded at once up to this size. Tokenizers need many times the memory of their text.
constexpr size_t unsplit_bytes_max = size_t{16} << 20;
/// Changes when the same text gets other tokens than before.
constexpr int cache_version = 2;

/// The beginning of a text that may be encoded on its own. It is longer than `at_most` where the text has no such place; after
/// unsplit_bytes_max without one, it ends between two characters.
std::string_view first_part(const Tokenizer& tokenizer, std::string_view text, size_t at_most) {
  for (;; at_most *= 2) {
    if (auto size = tokenizer.safe_split(text, at_most)) return text.substr(0, *size);
    if (at_most >= unsplit_bytes_max) break;
  }
  log::warning("the tokenizer knows no place to split a text within {}; it is split between two characters",
               format_bytes(at_most));
  size_t size = std::min(text.size(), unsplit_bytes_max);
  for (int step = 0; step < 3 && size < text.size() && unicode::continues(text[size]); ++step)
    --size;  // a character has at most three bytes behind its first; more are refused when the part is tokenised
  return text.substr(0, size);
}

std::vector<Part> parts_of(const MappedFile& file, const Tokenizer& tokenizer, size_t part_bytes) {
  const std::string identity =
      fmt::format("{} {}\n", cache_version, tokenizer.hash()) + fingerprint({file.path().string()});
  std::vector<Part> parts;
  for (std::string_view rest = text_of(file); !rest.empty(); rest.remove_prefix(parts.back().text.size())) {
    const auto text = first_part(tokenizer, rest, part_bytes);
    const auto begin = text_of(file).size() - rest.size();
    parts.push_back({.file = &file,
                     .text = text,
                     .opens_document = begin == 0,
                     .name = fmt::format("tokens-{}.bin",
                                         xxh3_hex(fmt::format("{}\n{}-{}", identity, begin, begin + text.size())))});
  }
  return parts;
}

void write_tokens(CacheWriter& out, const std::vector<int32_t>& tokens, size_t item_bytes) {
  if (item_bytes == 2) {
    std::vector<uint16_t> narrow(tokens.begin(), tokens.end());
    out.append(std::as_bytes(std::span(narrow)));
  } else {
    out.append(std::as_bytes(std::span(tokens)));
  }
}

/// Encodes a part in chunks, a few for each core at a time.
void tokenize(const Part& part, const Tokenizer& tokenizer, CacheWriter& out, TokenizingProgress* progress) {
  const auto whole = text_of(*part.file);
  std::string_view rest = part.text;
  bool opens_document = part.opens_document;
  while (!rest.empty()) {
    std::vector<Chunk> chunks;
    const size_t chunks_max = 8 * std::max(1u, std::thread::hardware_concurrency());
    while (!rest.empty() && chunks.size() < chunks_max) {
      const auto text = first_part(tokenizer, rest, chunk_bytes);
      chunks.push_back({text, opens_document, {}});
      rest.remove_prefix(text.size());
      opens_document = false;
    }
    const auto begin = static_cast<size_t>(chunks.front().text.data() - whole.data());
    check_utf8(part.file->path(), whole, begin, static_cast<size_t>(rest.data() - whole.data()));
    parallel_for(chunks.size(), [&](size_t i) {
      Chunk& chunk = chunks[i];
      chunk.tokens = chunk.opens_document ? tokenizer.encode(chunk.text) : tokenizer.encode_continuation(chunk.text);
    });
    for (const auto& chunk : chunks) {
      write_tokens(out, chunk.tokens, token_bytes(tokenizer.vocab_size()));
      if (progress) progress->add(chunk.text.size(), std::ssize(chunk.tokens));
    }
  }
}

class TextParts final : public TokenParts {
 public:
  TextParts(const std::vector<std::string>& files, std::shared_ptr<const Tokenizer> tokenizer, std::string cache_dir,
            PartBytes part_bytes)
      : tokenizer_(std::move(tokenizer)), cache_dir_(std::move(cache_dir)) {
    size_t all = 0;
    for (const auto& file : files) all += files_.emplace_back(std::make_unique<MappedFile>(file))->bytes().size();
    for (const auto& file : files_)
      std::ranges::move(parts_of(*file, *tokenizer_, part_bytes(all)), std::back_inserter(parts_));
  }
  size_t count() const override { return parts_.size(); }
  size_t bytes(size_t part) const override { return parts_[part].text.size(); }
  size_t threads() const override { return 1; }  // tokenize() uses all cores
  fs::path make(size_t index, TokenizingProgress* progress) const override {
    const Part& part = parts_[index];
    bool cached = true;
    const auto fill = [&](CacheWriter& out) {
      cached = false;
      tokenize(part, *tokenizer_, out, progress);
    };
    const auto file = make_once(cache_dir_, part.name, fill, /*quiet=*/!progress);
    if (progress && cached) progress->skip(part.text.size());
    return file;
  }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string cache_dir_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  std::vector<Part> parts_;
};

}  // namespace

std::unique_ptr<TokenParts> text_parts(const std::vector<std::string>& files,
                                       std::shared_ptr<const Tokenizer> tokenizer, const std::string& cache_dir,
                                       PartBytes part_bytes) {
  return std::make_unique<TextParts>(files, std::move(tokenizer), cache_dir, part_bytes);
}

void check_vocab_size(const Source& source, int64_t tokenizer_vocab_size) {
  if (source.vocab_size < tokenizer_vocab_size)
    throw usage_error(
        "data.tokenizer = \"{}\" has {} tokens, but the model's vocabulary has only {}; set model.vocab_size to {} or "
        "more",
        source.data.tokenizer, tokenizer_vocab_size, source.vocab_size, tokenizer_vocab_size);
}

DataParts parts_of_text(const Source& source, PartBytes part_bytes) {
  std::shared_ptr<const Tokenizer> tokenizer = open_tokenizer(source.data, source.cache_dir);
  check_vocab_size(source, tokenizer->vocab_size());
  DataParts parts;
  parts.open = [tokenizer, vocab_size = source.vocab_size](const std::vector<fs::path>& files) {
    std::vector<std::unique_ptr<TokenFile>> opened;
    for (const auto& tokens : files)
      opened.push_back(open_raw_tokens(tokens, token_bytes(tokenizer->vocab_size()), vocab_size));
    return OpenData{.stream = std::make_shared<TokenStream>(std::move(opened))};
  };
  parts.files = text_parts(source.files, tokenizer, source.cache_dir, part_bytes);
  return parts;
}

OpenData open_text(const Source& source) {
  if (source.data.tokenizer != "bytes") {
    const auto parts = parts_of_text(source, cached_part_bytes);
    return parts.open(make_parts(*parts.files));
  }
  check_vocab_size(source, bytes_vocab_size);
  std::vector<std::unique_ptr<TokenFile>> files;
  for (const auto& file : source.files) files.push_back(std::make_unique<TextFile>(file));
  return {.stream = std::make_shared<TokenStream>(std::move(files))};
}

}  // namespace runner
