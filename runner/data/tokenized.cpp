#include "runner/data/tokenized.hpp"

#include <algorithm>
#include <thread>

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/base/utf8.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/data/cache.hpp"
#include "runner/data/parallel_for.hpp"
#include "runner/data/source_files.hpp"
#include "runner/data/utf8.hpp"

namespace runner {

namespace {

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

}  // namespace runner
