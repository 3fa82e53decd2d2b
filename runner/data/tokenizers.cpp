// Opens the tokenizer that a recipe names.
#include "runner/data/tokenizers.hpp"

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/data/source_files.hpp"
#include "runner/pretrained/model_files.hpp"
#include "runner/tokenizers/hf_tokenizer.hpp"

namespace runner {

namespace {

/// The file that a name stands for. The name of a missing file may be a misspelled word: "sentencepeice".
fs::path given_file(const std::string& name) {
  const fs::path path = name;
  if (fs::exists(path)) return tokenizer_file(path);
  if (const auto hint = setup_hint(path); !hint.empty()) throw usage_error("there is no file {}{}", name, hint);
  auto near = nearest(path.filename().string(), {"bytes", "sentencepiece"});
  if (!near) near = nearest_file(path);
  throw usage_error("there is no file {}, and it is neither \"bytes\" nor \"sentencepiece\"{}", name,
                    near ? "; did you mean " + *near + "?"
                         : ": a tokenizer is a tokenizer.json, a SentencePiece model, a tiktoken or GGUF file, or a "
                           "folder with one of them");
}

/// Puts the key in front of the messages about a file.
template <typename Call>
auto about_tokenizer(Call&& call) {
  try {
    return call();
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage) throw;
    throw usage_error("data.tokenizer: {}", error.what());
  }
}

/// The model of the tokenizer "sentencepiece".
fs::path sentencepiece_of(const Recipe::Data& data, const std::string& cache_dir) {
  return data.trained_tokenizer.empty() ? trained_sentencepiece(data, cache_dir) : fs::path(data.trained_tokenizer);
}

}  // namespace

std::vector<Tokenizer::File> tokenizer_files(const Recipe::Data& data, const std::string& cache_dir) {
  if (!needs_tokenizing(data)) return {};
  if (data.tokenizer == "sentencepiece") return tokenizer_files(sentencepiece_of(data, cache_dir));
  return about_tokenizer([&] { return tokenizer_files(given_file(data.tokenizer)); });
}

std::unique_ptr<Tokenizer> open_tokenizer(const Recipe::Data& data, const std::string& cache_dir) {
  if (data.tokenizer == "bytes") return make_bytes_tokenizer();
  if (data.tokenizer == "sentencepiece") return open_tokenizer_file(sentencepiece_of(data, cache_dir));
  return about_tokenizer([&] { return open_tokenizer_file(given_file(data.tokenizer)); });
}

}  // namespace runner
