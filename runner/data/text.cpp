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

OpenData open_text(const Source& source) {
  std::vector<std::unique_ptr<TokenFile>> files;
  if (source.data.tokenizer == "bytes") {
    check_vocab_size(source, bytes_vocab_size);
    for (const auto& file : source.files) files.push_back(std::make_unique<TextFile>(file));
  } else {
    auto tokenizer = open_tokenizer(source.data, source.cache_dir);
    check_vocab_size(source, tokenizer->vocab_size());
    for (const auto& tokens : tokenized_files(source.files, *tokenizer, source.cache_dir))
      files.push_back(open_raw_tokens(tokens, token_bytes(tokenizer->vocab_size()), source.vocab_size));
  }
  return {.stream = std::make_shared<TokenStream>(std::move(files))};
}

}  // namespace runner
