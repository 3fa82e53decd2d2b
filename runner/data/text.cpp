// The data format "text": UTF-8 files, as mapped bytes or as cached tokens.
#include <chrono>
#include <mutex>
#include <set>

#include "runner/base/error.hpp"
#include "runner/data/formats.hpp"
#include "runner/data/source_files.hpp"
#include "runner/data/tokenized.hpp"
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

}  // namespace

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
