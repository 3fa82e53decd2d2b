// Opens a tokenizer by the content of its file.
#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/text.hpp"
#include "runner/pretrained/gguf_file.hpp"
#include "runner/pretrained/model_files.hpp"
#include "runner/tokenizers/hf_tokenizer.hpp"

namespace runner {

namespace {

fs::path tokenizer_in_gguf(const fs::path& path) {
  if (has_model_file(path / "tokenizer.json")) return path / "tokenizer.json";
  const auto metadata = GgufFile(path).metadata();
  const auto kind = metadata.find("tokenizer.ggml.model");
  if (kind == metadata.end()) throw usage_error("{} has no tokenizer", path.string());
  throw usage_error("{}: tokenizer.ggml.model = {} is not supported; allowed: gpt2 or llama", path.string(),
                    shortened_json(*kind));
}

}  // namespace

fs::path tokenizer_file(const fs::path& path) {
  if (is_gguf(path)) return tokenizer_in_gguf(path);
  if (!fs::is_directory(path)) return path;
  for (const char* name : {"tokenizer.json", "tokenizer.model"})
    if (fs::is_regular_file(path / name)) return path / name;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.path().extension() == ".tiktoken") found.push_back(entry.path());
  if (found.empty())
    throw usage_error(
        "{} is a folder without a tokenizer: it has neither tokenizer.json nor tokenizer.model nor a file *.tiktoken{}",
        path.string(),
        fs::is_regular_file(path / "vocab.json") || fs::is_regular_file(path / "vocab.txt")
            ? "; transformers writes tokenizer.json with AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
            : "");
  return *std::ranges::min_element(found);
}

namespace {

enum class TokenizerKind { json, tiktoken, sentencepiece };

TokenizerKind kind_of(const fs::path& file) {
  if (file_on_disk(file) != file) return TokenizerKind::json;
  const MappedFile map(file);
  const std::string_view content(reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size());
  if (trim(content.substr(0, 64)).starts_with('{')) return TokenizerKind::json;
  return looks_like_tiktoken(content) ? TokenizerKind::tiktoken : TokenizerKind::sentencepiece;
}

}  // namespace

std::vector<Tokenizer::File> tokenizer_files(const fs::path& path) {
  const fs::path file = tokenizer_file(path);
  const auto kind = kind_of(file);
  if (kind == TokenizerKind::sentencepiece) return {{file, "tokenizer.model"}};
  if (kind == TokenizerKind::tiktoken) return {{file, file.filename().string()}};
  std::vector<Tokenizer::File> files{{file, "tokenizer.json"}};
  if (file.filename() != "tokenizer.json") return files;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                           "chat_template.jinja", "chat_template.json"})
    if (const auto other = file.parent_path() / name; has_model_file(other)) files.push_back({other, name});
  return files;
}

std::unique_ptr<Tokenizer> open_tokenizer_file(const fs::path& path) {
  const fs::path file = tokenizer_file(path);
  const auto kind = kind_of(file);
  if (kind == TokenizerKind::json) return std::make_unique<HfTokenizer>(file);
  if (kind == TokenizerKind::tiktoken) return open_tiktoken(file);
  try {
    return open_sentencepiece(file);
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage) throw;
    throw usage_error("{} is neither a tokenizer.json nor a SentencePiece model nor a tiktoken file", file.string());
  }
}

}  // namespace runner
