#include "runner/data/tokenized.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

#include "runner/base/clock.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/data/cache.hpp"
#include "runner/data/source_files.hpp"
#include "runner/data/utf8.hpp"

namespace runner {

namespace {

constexpr size_t chunk_bytes = 64 * 1024;
constexpr double quiet_seconds = 2;

struct Chunk {
  std::string_view text;
  bool opens_document;
  std::vector<int32_t> tokens;
};

/// Runs `work` on 0 .. count-1 on all cores; rethrows the first exception.
void parallel_for(size_t count, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  size_t threads = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, count);
  std::vector<std::exception_ptr> failures(threads);
  auto drain = [&](size_t thread) {
    try {
      for (size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      failures[thread] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (size_t thread = 1; thread < threads; ++thread) others.emplace_back(drain, thread);
    drain(0);
  }
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

class Tokenization {
 public:
  Tokenization(const Tokenizer& tokenizer, size_t total_bytes, CacheWriter& out)
      : tokenizer_(tokenizer), item_bytes_(token_bytes(tokenizer.vocab_size())), total_bytes_(total_bytes), out_(out) {}

  void add_document(const MappedFile& file) {
    std::string_view rest = text_of(file);
    bool opens_document = true;
    while (!rest.empty()) {
      std::vector<Chunk> chunks;
      size_t chunks_max = 8 * std::max(1u, std::thread::hardware_concurrency());
      while (!rest.empty() && chunks.size() < chunks_max) {
        std::string_view text = next_part(rest);
        chunks.push_back({text, opens_document, {}});
        rest.remove_prefix(text.size());
        opens_document = false;
      }
      auto begin = static_cast<size_t>(chunks.front().text.data() - text_of(file).data());
      check_utf8(file.path(), text_of(file), begin, text_of(file).size() - rest.size());
      parallel_for(chunks.size(), [&](size_t i) {
        Chunk& chunk = chunks[i];
        chunk.tokens =
            chunk.opens_document ? tokenizer_.encode(chunk.text) : tokenizer_.encode_continuation(chunk.text);
      });
      for (const auto& chunk : chunks) write(chunk);
      show_progress();
    }
  }

  void finish() const {
    if (spoken_)
      log::info("tokenised {} tokens in {}", format_count(static_cast<double>(tokens_)),
                format_duration(steady_seconds() - begun_));
  }

 private:
  /// Parts are longer than chunk_bytes where the text has no place to split it.
  std::string_view next_part(std::string_view rest) const {
    for (size_t at_most = chunk_bytes;; at_most *= 2)
      if (auto size = tokenizer_.safe_split(rest, at_most)) return rest.substr(0, *size);
  }

  void write(const Chunk& chunk) {
    bytes_ += chunk.text.size();
    tokens_ += chunk.tokens.size();
    if (item_bytes_ == 2) {
      std::vector<uint16_t> narrow(chunk.tokens.begin(), chunk.tokens.end());
      out_.append(std::as_bytes(std::span(narrow)));
    } else {
      out_.append(std::as_bytes(std::span(chunk.tokens)));
    }
  }

  void show_progress() {
    double now = steady_seconds();
    if (now - last_spoken_ < quiet_seconds) return;
    last_spoken_ = now;
    spoken_ = true;
    double share = static_cast<double>(bytes_) / static_cast<double>(total_bytes_);
    log::info("tokenising: {:.0f} % of {}, {} tokens, {} left", 100 * share, format_bytes(total_bytes_),
              format_count(static_cast<double>(tokens_)), format_duration((now - begun_) * (1 - share) / share));
  }

  const Tokenizer& tokenizer_;
  size_t item_bytes_, total_bytes_;
  CacheWriter& out_;
  size_t bytes_ = 0, tokens_ = 0;
  double begun_ = steady_seconds(), last_spoken_ = begun_;
  bool spoken_ = false;
};

}  // namespace

fs::path tokenized_file(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                        const std::string& cache_dir) {
  std::string name = "tokens-" + xxh3_hex(tokenizer.hash() + "\n" + fingerprint(files)) + ".bin";
  return make_once(cache_dir, name, [&](CacheWriter& out) {
    size_t total_bytes = 0;
    for (const auto& file : files) total_bytes += fs::file_size(file);
    Tokenization tokenization(tokenizer, total_bytes, out);
    for (const auto& file : files) tokenization.add_document(MappedFile(file));
    tokenization.finish();
  });
}

}  // namespace runner
