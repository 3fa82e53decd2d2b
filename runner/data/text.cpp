// The data format "text": UTF-8 files, as mapped bytes or as cached tokens.
#include "runner/base/error.hpp"
#include "runner/data/formats.hpp"
#include "runner/data/tokenized.hpp"
#include "runner/data/tokenizers.hpp"
#include "runner/data/utf8.hpp"

namespace runner {

namespace {

/// A text file whose bytes are the tokens.
class TextFile final : public TokenFile {
 public:
  explicit TextFile(const fs::path& path) : TokenFile(path, 0, 1) {}

 private:
  void check(int64_t first, int64_t count) const override {
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
