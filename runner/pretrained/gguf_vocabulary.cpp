#include "runner/pretrained/gguf_vocabulary.hpp"

namespace runner {

using nlohmann::json;
using Strings = std::vector<std::string>;

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

}  // namespace runner
