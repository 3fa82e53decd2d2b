// The tokenizer in a GGUF file's metadata as the files of a Hugging Face folder. Sources: docs/gguf.md of the ggml project
// (tokenizer.ggml.*), and llama-vocab.cpp of llama.cpp for the names of pre-tokenizers.
#include "runner/pretrained/gguf_vocabulary.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "runner/base/limits.hpp"
#include "runner/base/utf8.hpp"
#include "runner/pretrained/gguf_metadata.hpp"

namespace runner {

namespace {

using nlohmann::json;
using Strings = std::vector<std::string>;

/// Values of tokenizer.ggml.token_type.
enum class TokenType : int64_t { normal = 1, unknown, control, user_defined, unused, byte };

/// The text of the token that a key names; empty if there is none.
std::string named_token(const GgufMetadata& metadata, const Strings& tokens, const char* role) {
  const auto key = fmt::format("tokenizer.ggml.{}_token_id", role);
  if (!metadata.has(key)) return "";
  const auto id = metadata.require<int64_t>(key);
  if (id >= std::ssize(tokens))
    metadata.refuse(fmt::format("`{}` is {}, and there are {} tokens", key, id, tokens.size()));
  return tokens[static_cast<size_t>(id)];
}

/// tokenizer.ggml.tokens.
Strings tokens_of(const GgufMetadata& metadata) {
  auto tokens = metadata.require<Strings>("tokenizer.ggml.tokens");
  if (tokens.size() > INT32_MAX) metadata.refuse("`tokenizer.ggml.tokens` is too long");
  for (size_t id = 0; id < tokens.size(); ++id)
    if (const auto bad = first_invalid_utf8(tokens[id]))
      metadata.refuse(fmt::format("token {} of `tokenizer.ggml.tokens` is not UTF-8: \"{}\"", id,
                                  shortened_text(escape_invalid_utf8(tokens[id]))));
  return tokens;
}

/// The types of all tokens.
std::vector<TokenType> token_types_of(const GgufMetadata& metadata, size_t tokens) {
  const char* key = "tokenizer.ggml.token_type";
  if (!metadata.has(key)) return std::vector<TokenType>(tokens, TokenType::normal);
  const auto numbers = metadata.require<std::vector<int64_t>>(key);
  if (numbers.size() != tokens)
    metadata.refuse(fmt::format("`{}` has {} elements, and there are {} tokens", key, numbers.size(), tokens));
  std::vector<TokenType> types;
  types.reserve(tokens);
  for (const auto number : numbers) types.push_back(static_cast<TokenType>(number));
  return types;
}

/// {"token": id, ...}
json vocabulary_json(const GgufMetadata& metadata, const Strings& tokens) {
  json vocabulary = json::object();
  for (size_t id = 0; id < tokens.size(); ++id)
    if (!vocabulary.emplace(tokens[id], id).second)
      metadata.refuse(fmt::format("tokens {} and {} of `tokenizer.ggml.tokens` are the same: \"{}\"",
                                  vocabulary[tokens[id]].get<int64_t>(), id, shortened_text(tokens[id])));
  return vocabulary;
}

/// Control tokens and tokens of users are found in a text before it is cut into words.
json added_tokens(const GgufMetadata& metadata, const Strings& tokens) {
  json added = json::array();
  const auto types = token_types_of(metadata, tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id)
    if (types[id] == TokenType::control || types[id] == TokenType::user_defined || types[id] == TokenType::unknown)
      added.push_back({{"id", id},
                       {"content", tokens[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", types[id] != TokenType::user_defined}});
  return added;
}

/// The post-processor that puts BOS before a text and EOS behind it; null if there is neither. `bos`: whether BOS is added if the
/// metadata do not say.
json special_tokens_around(const GgufMetadata& metadata, const Strings& tokens, const json& vocabulary, bool bos) {
  const auto first = named_token(metadata, tokens, "bos"), last = named_token(metadata, tokens, "eos");
  const bool adds_first = metadata.get("tokenizer.ggml.add_bos_token", bos) && !first.empty();
  const bool adds_last = metadata.get("tokenizer.ggml.add_eos_token", false) && !last.empty();
  if (!adds_first && !adds_last) return nullptr;
  json single = json::array(), pair = json::array(), special = json::object();
  for (const auto& [text, type] : {std::pair("A", 0), std::pair("B", 1)}) {
    const auto add = [&](const json& item) {
      if (type == 0) single.push_back(item);
      pair.push_back(item);
    };
    if (adds_first) add({{"SpecialToken", {{"id", first}, {"type_id", type}}}});
    add({{"Sequence", {{"id", text}, {"type_id", type}}}});
    if (adds_last) add({{"SpecialToken", {{"id", last}, {"type_id", type}}}});
  }
  const auto list = [&](const std::string& token) {
    special[token] = {{"id", token}, {"ids", {vocabulary.at(token)}}, {"tokens", {token}}};
  };
  if (adds_first) list(first);
  if (adds_last) list(last);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

// Tokenizers "llama" as BPE of tokenizer.json: the merges follow from the scores of the pieces. Source: LlamaConverter and
// generate_merges of transformers' convert_slow_tokenizer.py, which convert SentencePiece models in the same way.

constexpr const char* space_sign = "\u2581";  // SentencePiece's sign for a space

struct Merge {
  std::string_view left, right;
  int64_t left_id = 0, right_id = 0;
  double score = 0;
};

std::vector<double> scores_of(const GgufMetadata& metadata, const Strings& tokens) {
  const char* key = "tokenizer.ggml.scores";
  auto scores = metadata.require<std::vector<double>>(key);
  if (scores.size() != tokens.size())
    metadata.refuse(fmt::format("`{}` has {} elements, and there are {} tokens", key, scores.size(), tokens.size()));
  return scores;
}

/// All pairs of pieces that make a piece, those of the highest scores first.
json merges_json(const GgufMetadata& metadata, const Strings& tokens) {
  const auto scores = scores_of(metadata, tokens);
  const auto types = token_types_of(metadata, tokens.size());
  const auto in_texts = [&](size_t id) {
    return types[id] == TokenType::normal || types[id] == TokenType::user_defined;
  };
  std::map<std::string_view, int64_t> ids;
  for (size_t id = 0; id < tokens.size(); ++id)
    if (in_texts(id)) ids.emplace(tokens[id], static_cast<int64_t>(id));
  std::vector<Merge> merges;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!in_texts(id)) continue;
    const std::string_view piece = tokens[id];
    if (piece.size() > token_bytes_max)
      metadata.refuse(fmt::format("a token has {} bytes; at most {} are allowed", piece.size(), token_bytes_max));
    const auto first = std::ssize(merges);
    for (size_t place = 1; place < piece.size(); ++place) {
      if (unicode::continues(piece[place])) continue;  // inside of a character
      const auto left = ids.find(piece.substr(0, place)), right = ids.find(piece.substr(place));
      if (left != ids.end() && right != ids.end())
        merges.push_back({left->first, right->first, left->second, right->second, scores[id]});
    }
    std::sort(merges.begin() + first, merges.end(), [](const Merge& a, const Merge& b) {
      return std::pair(a.left_id, a.right_id) < std::pair(b.left_id, b.right_id);
    });
  }
  std::ranges::stable_sort(merges, [&](const Merge& a, const Merge& b) {
    if (a.score != b.score) return a.score > b.score;
    return std::pair(unicode::count(a.left), unicode::count(a.right)) >
           std::pair(unicode::count(b.left), unicode::count(b.right));
  });
  json list = json::array();
  for (const auto& merge : merges) list.push_back({merge.left, merge.right});
  return list;
}

/// All 256 or none.
bool has_bytes(const GgufMetadata& metadata, const json& vocabulary) {
  int count = 0;
  for (int byte = 0; byte < 256; ++byte) count += vocabulary.contains(fmt::format("<0x{:02X}>", byte));
  if (count != 0 && count != 256)
    metadata.refuse(fmt::format("`tokenizer.ggml.tokens` has {} of the 256 tokens <0x00> to <0xFF>", count));
  return count == 256;
}

json normalizer(const GgufMetadata& metadata, bool space_prefix) {
  json steps = json::array();
  if (metadata.get("tokenizer.ggml.remove_extra_whitespaces", false)) {
    steps.push_back({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}});
    steps.push_back({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}});
  }
  if (space_prefix) steps.push_back({{"type", "Prepend"}, {"prepend", space_sign}});
  steps.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space_sign}});
  return {{"type", "Sequence"}, {"normalizers", steps}};
}

json decoder(bool space_prefix) {
  json steps = {{{"type", "Replace"}, {"pattern", {{"String", space_sign}}}, {"content", " "}},
                {{"type", "ByteFallback"}},
                {{"type", "Fuse"}}};
  if (space_prefix) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", steps}};
}

json sentencepiece_tokenizer(const GgufMetadata& metadata) {
  const auto tokens = tokens_of(metadata);
  const json vocabulary = vocabulary_json(metadata, tokens);
  if (metadata.has("tokenizer.ggml.precompiled_charsmap"))
    metadata.refuse("`tokenizer.ggml.precompiled_charsmap` is not supported with tokenizer.ggml.model = \"llama\"");
  const bool space_prefix = metadata.get("tokenizer.ggml.add_space_prefix", true);
  auto unknown = named_token(metadata, tokens, "unknown");
  const auto types = token_types_of(metadata, tokens.size());
  const auto first_unknown = std::ranges::find(types, TokenType::unknown);
  if (unknown.empty() && first_unknown != types.end())
    unknown = tokens[static_cast<size_t>(first_unknown - types.begin())];
  json root = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"pre_tokenizer", nullptr}};
  root["added_tokens"] = added_tokens(metadata, tokens);
  root["normalizer"] = normalizer(metadata, space_prefix);
  root["post_processor"] = special_tokens_around(metadata, tokens, vocabulary, /*bos=*/true);
  root["decoder"] = decoder(space_prefix);
  root["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", unknown.empty() ? json() : json(unknown)},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", true},
                   {"byte_fallback", has_bytes(metadata, vocabulary)},
                   {"ignore_merges", false},
                   {"vocab", vocabulary},
                   {"merges", merges_json(metadata, tokens)}};
  return root;
}

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
  metadata.refuse(
      fmt::format("tokenizer.ggml.pre = \"{}\" is not supported; allowed: {}", shortened_text(pre), join_or(names)));
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

}  // namespace

std::string gguf_tokenizer_json(const GgufFile& file) {
  const GgufMetadata metadata(file);
  if (metadata.has("tokenizer.huggingface.json")) return metadata.require<std::string>("tokenizer.huggingface.json");
  const auto kind = metadata.get<std::string>("tokenizer.ggml.model", "none");
  if (kind == "gpt2") return byte_level_tokenizer(metadata).dump();
  return kind == "llama" ? sentencepiece_tokenizer(metadata).dump() : "";
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
