// A tokenizer.json of byte-level BPE that is trained on a text, without care for speed.
#pragma once
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/tokenizers/byte_characters.hpp"

namespace runner {

/// The content of tokenizer.json: first `special_tokens`, then the 256 bytes, then merges, each of the pair that was most frequent. A word
/// begins at each space.
inline std::string trained_bpe(const std::string& text, size_t vocab_size,
                               const std::vector<std::string>& special_tokens) {
  nlohmann::json vocabulary = nlohmann::json::object(), merges = nlohmann::json::array(),
                 added = nlohmann::json::array();
  const auto add = [&](const std::string& token) {
    const size_t id = vocabulary.size();
    vocabulary.emplace(token, id);
  };
  for (const auto& token : special_tokens) {
    added.push_back({{"id", vocabulary.size()}, {"content", token}, {"special", true}});
    for (const char* no : {"single_word", "lstrip", "rstrip", "normalized"}) added.back()[no] = false;
    add(token);
  }
  std::vector<std::vector<std::string>> words(1);
  for (int byte = 0; byte < 256; ++byte) add(characters_of(std::string(1, static_cast<char>(byte))));
  for (const char byte : text) {
    if (byte == ' ') words.emplace_back();
    words.back().push_back(characters_of(std::string(1, byte)));
  }
  while (vocabulary.size() < vocab_size) {
    std::map<std::pair<std::string, std::string>, int> counts;
    for (const auto& word : words)
      for (size_t i = 0; i + 1 < word.size(); ++i) ++counts[{word[i], word[i + 1]}];
    const auto most =
        std::ranges::max_element(counts, {}, [](const auto& pair_and_count) { return pair_and_count.second; });
    if (most == counts.end() || most->second < 2) break;
    const auto& [left, right] = most->first;
    add(left + right);
    merges.push_back({left, right});
    for (auto& word : words)
      for (size_t i = 0; i + 1 < word.size(); ++i)
        if (word[i] == left && word[i + 1] == right) {
          word[i] += right;
          word.erase(word.begin() + static_cast<ptrdiff_t>(i) + 1);
        }
  }
  const nlohmann::json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return nlohmann::json{
      {"version", "1.0"},       {"added_tokens", added},
      {"pre_tokenizer", bytes}, {"post_processor", bytes},
      {"decoder", bytes},       {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}}
      .dump();
}

}  // namespace runner
