#include "runner/pretrained/model_files.hpp"

#include <array>

#include "runner/base/error.hpp"
#include "runner/pretrained/gguf_model.hpp"
#include "runner/pretrained/gguf_vocabulary.hpp"

namespace runner {

namespace {

// The tokenizer in a GGUF file's metadata as the files of a Hugging Face folder. Torch-free. Sources: docs/gguf.md of the ggml project
// (tokenizer.ggml.*), and llama-vocab.cpp of llama.cpp for the names of pre-tokenizers.

using nlohmann::json;
using Strings = std::vector<std::string>;

/// How a text is cut into words, for several values of tokenizer.ggml.pre.
struct Words {
  std::array<const char*, 5> expressions = {};  ///< applied one after another; none: GPT-2's
  bool single_digits = false;  ///< each digit is a word of its own; before GPT-2's expression, after others
  bool nfc = false;            ///< the text is brought to this normal form first
  bool whole_words = false;    ///< a word that is in the vocabulary is not built from merges
  bool bos = false;            ///< precedes a text if the metadata do not say otherwise
};

constexpr const char* three_digits =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr Words gpt2_words = {}, digit_words = {.single_digits = true};
constexpr Words llama3_words = {.expressions = {three_digits}, .whole_words = true, .bos = true};
constexpr Words three_digit_words = {.expressions = {three_digits}};
constexpr Words qwen2_words = {
    .expressions =
        {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    .nfc = true};
// Words of letters end where a capital letter follows a small one.
constexpr Words tekken_words = {
    .expressions =
        {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    .whole_words = true,
    .bos = true};
constexpr Words gpt4o_words = {
    .expressions = {
        R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};
constexpr Words deepseek_coder_words = {
    .expressions = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"},
    .single_digits = true};
constexpr Words deepseek3_words = {
    .expressions = {
        R"(\p{N}{1,3})", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};
constexpr std::pair<const char*, const Words*> known_words[] = {
    {"gpt-2", &gpt2_words},
    {"phi-2", &gpt2_words},
    {"smollm", &digit_words},
    {"starcoder", &digit_words},
    {"refact", &digit_words},
    {"command-r", &digit_words},
    {"llama-bpe", &llama3_words},
    {"llama3", &llama3_words},
    {"llama-v3", &llama3_words},
    {"smaug-bpe", &three_digit_words},
    {"dbrx", &three_digit_words},
    {"qwen2", &qwen2_words},
    {"deepseek-r1-qwen", &qwen2_words},
    {"tekken", &tekken_words},
    {"gpt-4o", &gpt4o_words},
    {"deepseek-coder", &deepseek_coder_words},
    {"deepseek-v3", &deepseek3_words},
};

const Words& words_of(const GgufMetadata& metadata) {
  const auto pre = metadata.get<std::string>("tokenizer.ggml.pre", "default");
  Strings names;
  for (const auto& [name, words] : known_words) {
    if (name == pre) return *words;
    names.emplace_back(name);
  }
  metadata.refuse(fmt::format("tokenizer.ggml.pre = \"{}\" is not supported; allowed: {}", pre, join_or(names)));
}

json pre_tokenizer(const Words& words) {
  const bool own = words.expressions[0] != nullptr;
  json steps = json::array();
  for (const char* expression : words.expressions)
    if (expression)
      steps.push_back(
          {{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}, {"invert", false}});
  if (words.single_digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", !own}});
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

json byte_level_tokenizer(const GgufMetadata& metadata) {
  const auto& words = words_of(metadata);
  const auto tokens = tokens_of(metadata);
  const json vocabulary = vocabulary_json(metadata, tokens);
  json root = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"normalizer", nullptr}};
  root["added_tokens"] = added_tokens(metadata, tokens);
  if (words.nfc) root["normalizer"] = {{"type", "NFC"}};
  root["pre_tokenizer"] = pre_tokenizer(words);
  root["post_processor"] = special_tokens_around(metadata, tokens, vocabulary, words.bos);
  root["decoder"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  root["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", words.whole_words},
                   {"vocab", vocabulary},
                   {"merges", metadata.require<Strings>("tokenizer.ggml.merges")}};
  return root;
}

/// The content of tokenizer.json; empty if the file's tokenizer is of another kind, or if there is none. Throws Error(usage), with the
/// path, for a tokenizer that is not supported.
std::string gguf_tokenizer_json(const GgufFile& file) {
  const GgufMetadata metadata(file);
  if (metadata.has("tokenizer.huggingface.json")) return metadata.require<std::string>("tokenizer.huggingface.json");
  const auto kind = metadata.get<std::string>("tokenizer.ggml.model", "none");
  if (kind == "gpt2") return byte_level_tokenizer(metadata).dump();
  return kind == "llama" ? sentencepiece_tokenizer(metadata).dump() : "";
}

/// tokenizer_config.json: special tokens, chat templates, and whether a BOS precedes a text.
nlohmann::json gguf_tokenizer_config(const GgufFile& file) {
  const GgufMetadata metadata(file);
  json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  if (metadata.has("tokenizer.ggml.tokens")) {
    const auto tokens = tokens_of(metadata);
    for (const auto& [key, role] :
         {std::pair("bos_token", "bos"), {"eos_token", "eos"}, {"pad_token", "padding"}, {"unk_token", "unknown"}})
      if (const auto token = named_token(metadata, tokens, role); !token.empty()) config[key] = token;
  }
  const std::string key = "tokenizer.chat_template";
  if (metadata.has(key)) config["chat_template"] = metadata.require<std::string>(key);
  const auto names = metadata.get<Strings>("tokenizer.chat_templates", {});
  if (names.empty()) return config;
  json templates = json::array();
  if (config.contains("chat_template"))
    templates.push_back({{"name", "default"}, {"template", config["chat_template"]}});
  for (const auto& name : names)
    if (metadata.has(key + "." + name))
      templates.push_back({{"name", name}, {"template", metadata.require<std::string>(key + "." + name)}});
  config["chat_template"] = templates;
  return config;
}

bool inside_gguf(const fs::path& path) { return path.has_parent_path() && is_gguf(path.parent_path()); }

/// Empty if the metadata have no such file.
std::string gguf_text(const fs::path& path) {
  const GgufFile file(path.parent_path());
  const auto name = path.filename();
  if (name == "tokenizer.json") return gguf_tokenizer_json(file);
  if (name == "config.json") return gguf_config(file).dump(2) + "\n";
  if (name == "tokenizer_config.json") return gguf_tokenizer_config(file).dump(2) + "\n";
  return "";
}

}  // namespace

bool is_model_folder(const fs::path& path) { return fs::is_directory(path) || is_gguf(path); }

bool has_model_file(const fs::path& path) {
  return inside_gguf(path) ? !gguf_text(path).empty() : fs::is_regular_file(path);
}

std::string read_model_file(const fs::path& path) {
  if (!inside_gguf(path)) return read_file(path);
  auto text = gguf_text(path);
  if (text.empty()) throw environment_error("{} has no {}", path.parent_path().string(), path.filename().string());
  return text;
}

std::string setup_hint(const fs::path& path) {
  return path.parent_path().filename() == "smollm2" ? "; `scripts/setup --smollm2` downloads it" : "";
}

fs::path file_on_disk(const fs::path& path) { return inside_gguf(path) ? path.parent_path() : path; }

}  // namespace runner
