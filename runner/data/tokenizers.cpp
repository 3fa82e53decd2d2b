// Opens the tokenizer that a recipe names.
#include "runner/data/tokenizers.hpp"

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/data/source_files.hpp"
#include "runner/tokenizers/sentencepiece.hpp"

namespace runner {

namespace {

constexpr const char* other_tokenizers =
    "with other tokenizers, encode the text yourself and use data.format = \"bin\"";

/// The model file. The name of a missing file may be a misspelled word: "sentencepeice".
fs::path given_model(const std::string& name) {
  fs::path path = name;
  if (fs::is_regular_file(path)) return path;
  if (fs::is_directory(path))
    throw usage_error("data.tokenizer: {} is a folder; name the SentencePiece model in it", name);
  auto near = nearest(path.filename().string(), {"bytes", "sentencepiece"});
  if (!near) near = nearest_file(path);
  throw usage_error("data.tokenizer: there is no file {}, and it is neither \"bytes\" nor \"sentencepiece\"; {}", name,
                    near ? "did you mean " + *near + "?" : other_tokenizers);
}

}  // namespace

fs::path sentencepiece_file(const Recipe::Data& data, const std::string& cache_dir) {
  return data.tokenizer == "sentencepiece" ? trained_sentencepiece(data, cache_dir) : given_model(data.tokenizer);
}

std::unique_ptr<Tokenizer> open_tokenizer(const Recipe::Data& data, const std::string& cache_dir) {
  if (data.tokenizer == "bytes") return make_bytes_tokenizer();
  const auto file = sentencepiece_file(data, cache_dir);
  try {
    return std::make_unique<SentencePieceTokenizer>(file);
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage) throw;
    throw usage_error("data.tokenizer: {}; {}", error.what(), other_tokenizers);
  }
}

}  // namespace runner
