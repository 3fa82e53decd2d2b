// A tokenizer whose tokens are words, for tests that need a pad token.
#pragma once
#include <nlohmann/json.hpp>

#include "tests/support/command.hpp"

namespace runner::testing {

/// Writes the folder "words" with tokenizer.json and tokenizer_config.json: <unk> is 0, <pad> is 1, and then come the words.
inline void write_word_tokenizer(const Workplace& place, const std::vector<std::string>& words) {
  nlohmann::json vocabulary = {{"<unk>", 0}, {"<pad>", 1}};
  for (const auto& word : words) {
    const auto id = vocabulary.size();
    vocabulary[word] = id;
  }
  const nlohmann::json pad = {{"id", 1},         {"content", "<pad>"},  {"single_word", false}, {"lstrip", false},
                              {"rstrip", false}, {"normalized", false}, {"special", true}};
  const nlohmann::json tokenizer = {{"version", "1.0"},
                                    {"added_tokens", nlohmann::json::array({pad})},
                                    {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
                                    {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "<unk>"}}}};
  fs::create_directories(place.path() / "words");
  place.write("words/tokenizer.json", tokenizer.dump());
  place.write("words/tokenizer_config.json", R"({"pad_token": "<pad>", "tokenizer_class": "PreTrainedTokenizerFast"})");
}

}  // namespace runner::testing
