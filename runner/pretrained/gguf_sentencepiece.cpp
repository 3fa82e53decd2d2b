// Tokenizers "llama" of GGUF files as BPE of tokenizer.json: the merges follow from the scores of the pieces.
// Sources: LlamaConverter and generate_merges of transformers' convert_slow_tokenizer.py, which convert SentencePiece models in the
// same way, and docs/gguf.md of the ggml project.
#include <algorithm>
#include <map>

#include "runner/base/limits.hpp"
#include "runner/base/utf8.hpp"
#include "runner/pretrained/gguf_vocabulary.hpp"

namespace runner {

namespace {

using nlohmann::json;
using Strings = std::vector<std::string>;

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

}  // namespace

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

}  // namespace runner
