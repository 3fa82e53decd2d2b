#include "runner/pretrained/gguf_tokenizer.hpp"

#include <algorithm>

#include "runner/pretrained/gguf_metadata.hpp"

namespace runner {

namespace {

using nlohmann::json;
using Strings = std::vector<std::string>;

/// Values of tokenizer.ggml.token_type.
enum TokenType : int64_t { normal = 1, unknown, control, user_defined, unused, byte };

/// How a text is cut into words, for several values of tokenizer.ggml.pre.
struct Words {
  const char* expression = "";  ///< empty: GPT-2's
  bool single_digits = false;   ///< each digit is a word of its own, before GPT-2's expression is applied
  bool nfc = false;             ///< the text is brought to this normal form first
  bool whole_words = false;     ///< a word that is in the vocabulary is not built from merges
  bool bos = false;             ///< precedes a text if the metadata do not say otherwise
};
constexpr Words gpt2_words = {}, digit_words = {.single_digits = true};
constexpr Words llama3_words = {
    .expression =
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    .whole_words = true,
    .bos = true};
constexpr Words qwen2_words = {
    .expression =
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    .nfc = true};
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
    {"qwen2", &qwen2_words},
    {"deepseek-r1-qwen", &qwen2_words},
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

/// The text of the token that a key names; empty if there is none.
std::string named_token(const GgufMetadata& metadata, const Strings& tokens, const char* role) {
  const auto key = fmt::format("tokenizer.ggml.{}_token_id", role);
  if (!metadata.has(key)) return "";
  const auto id = metadata.require<int64_t>(key);
  if (id >= std::ssize(tokens))
    metadata.refuse(fmt::format("`{}` is {}, and there are {} tokens", key, id, tokens.size()));
  return tokens[static_cast<size_t>(id)];
}

Strings tokens_of(const GgufMetadata& metadata) {
  auto tokens = metadata.require<Strings>("tokenizer.ggml.tokens");
  if (tokens.size() > INT32_MAX) metadata.refuse("`tokenizer.ggml.tokens` is too long");
  for (size_t id = 0; id < tokens.size(); ++id)
    if (const auto bad = first_invalid_utf8(tokens[id]))
      metadata.refuse(
          fmt::format("token {} of `tokenizer.ggml.tokens` is not UTF-8: \"{}\"", id, escape_invalid_utf8(tokens[id])));
  return tokens;
}

json vocabulary_json(const GgufMetadata& metadata, const Strings& tokens) {
  json vocabulary = json::object();
  for (size_t id = 0; id < tokens.size(); ++id)
    if (!vocabulary.emplace(tokens[id], id).second)
      metadata.refuse(fmt::format("tokens {} and {} of `tokenizer.ggml.tokens` are the same: \"{}\"",
                                  vocabulary[tokens[id]].get<int64_t>(), id, tokens[id]));
  return vocabulary;
}

/// Control tokens and tokens of users are found in a text before it is cut into words.
json added_tokens(const GgufMetadata& metadata, const Strings& tokens) {
  json added = json::array();
  const auto types =
      metadata.get<std::vector<int64_t>>("tokenizer.ggml.token_type", std::vector<int64_t>(tokens.size(), normal));
  if (types.size() != tokens.size())
    metadata.refuse(fmt::format("`tokenizer.ggml.token_type` has {} elements, and there are {} tokens", types.size(),
                                tokens.size()));
  for (size_t id = 0; id < tokens.size(); ++id)
    if (types[id] == control || types[id] == user_defined || types[id] == unknown)
      added.push_back({{"id", id},
                       {"content", tokens[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", types[id] != user_defined}});
  return added;
}

json pre_tokenizer(const Words& words) {
  const bool own = *words.expression != '\0';
  json steps = json::array();
  if (words.single_digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (own)
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", words.expression}}}, {"behavior", "Isolated"}, {"invert", false}});
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", !own}});
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

json bos_in_front(const std::string& token, const json& vocabulary) {
  const json bos = {{"SpecialToken", {{"id", token}, {"type_id", 0}}}};
  const auto text = [](const char* id, int type) { return json{{"Sequence", {{"id", id}, {"type_id", type}}}}; };
  return {{"type", "TemplateProcessing"},
          {"single", {bos, text("A", 0)}},
          {"pair", {bos, text("A", 0), bos, text("B", 1)}},
          {"special_tokens", {{token, {{"id", token}, {"ids", {vocabulary.at(token)}}, {"tokens", {token}}}}}}};
}

std::string kind_of_tokenizer(const GgufMetadata& metadata) {
  return metadata.get<std::string>("tokenizer.ggml.model", "none");
}

}  // namespace

std::string gguf_tokenizer_json(const GgufFile& file) {
  const GgufMetadata metadata(file);
  if (metadata.has("tokenizer.huggingface.json")) return metadata.require<std::string>("tokenizer.huggingface.json");
  if (kind_of_tokenizer(metadata) != "gpt2") return "";
  const auto& words = words_of(metadata);
  const auto tokens = tokens_of(metadata);
  const json vocabulary = vocabulary_json(metadata, tokens);
  json root = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"normalizer", nullptr}};
  root["added_tokens"] = added_tokens(metadata, tokens);
  if (words.nfc) root["normalizer"] = {{"type", "NFC"}};
  root["pre_tokenizer"] = pre_tokenizer(words);
  root["post_processor"] = nullptr;
  const auto bos = named_token(metadata, tokens, "bos");
  if (!bos.empty() && metadata.get("tokenizer.ggml.add_bos_token", words.bos))
    root["post_processor"] = bos_in_front(bos, vocabulary);
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
  return root.dump();
}

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

}  // namespace runner
