#include "runner/tokenizers/bpe_trainer.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <queue>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/tokenizers/byte_characters.hpp"
#include "runner/tokenizers/pre_tokenizers.hpp"

namespace runner {

namespace {

using Pair = uint64_t;
Pair pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

struct Word {
  std::vector<int32_t> symbols;
  int64_t count;
};

/// A pair, how often it was seen when it was put into the queue, and the words that have it.
struct Candidate {
  Pair pair;
  int64_t count;
  std::vector<uint32_t> words;
  bool operator<(const Candidate& other) const {  // the most frequent first, then the lowest ids
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

std::vector<std::pair<std::string, int64_t>> count_words(const BpeTraining& settings, const TextSource& texts) {
  const Regex expression(settings.expression.empty() ? gpt2_words : settings.expression.c_str());
  std::unordered_map<std::string, int64_t> counts;
  for (std::string text; texts(text);) {
    if (const auto bad = first_invalid_utf8(text))
      throw usage_error("the text is not UTF-8: byte 0x{:02x} at offset {}", static_cast<unsigned char>(text[*bad]),
                        *bad);
    if (settings.add_prefix_space && !text.empty() && text[0] != ' ') text.insert(text.begin(), ' ');
    PatternTime time(text.size());
    expression.split(text, time, [&](size_t begin, size_t end, bool) { ++counts[text.substr(begin, end - begin)]; });
  }
  return {counts.begin(), counts.end()};
}

class Trainer {
 public:
  Trainer(const BpeTraining& settings, const TextSource& texts) : settings_(settings) {
    if (settings.add_prefix_space && !settings.expression.empty())
      throw usage_error("add_prefix_space and an expression for words exclude each other: each word would get a space");
    for (const auto& token : settings.special_tokens) add_token(token);
    auto characters = byte_characters();
    std::ranges::sort(characters);
    for (char32_t c : characters) {
      std::string token;
      unicode::append(token, c);
      add_token(token);
    }
    if (std::ssize(tokens_) > settings.vocab_size)
      throw usage_error("a vocabulary of {} tokens has no room for 256 bytes and {}", settings.vocab_size,
                        counted(std::ssize(settings.special_tokens), "special token"));
    for (const auto& [text, count] : count_words(settings, texts)) {
      Word word{{}, count};
      for (char byte : text) word.symbols.push_back(ids_.at(characters_of({&byte, 1})));
      words_.push_back(std::move(word));
    }
  }

  void run() {
    for (uint32_t w = 0; w < words_.size(); ++w)
      for (size_t i = 0; i + 1 < words_[w].symbols.size(); ++i)
        change(pair_of(words_[w].symbols[i], words_[w].symbols[i + 1]), words_[w].count, w);
    offer_changed();
    while (std::ssize(tokens_) < settings_.vocab_size && !queue_.empty()) {
      Candidate top = queue_.top();
      queue_.pop();
      if (const int64_t now = counts_[top.pair]; now != top.count) {
        top.count = now;
        queue_.push(std::move(top));
        continue;
      }
      if (top.count < 1 || top.count < settings_.min_frequency) break;
      join(top);
    }
  }

  std::string json() const {
    nlohmann::ordered_json added = nlohmann::ordered_json::array();
    for (const auto& token : settings_.special_tokens)
      added.push_back({{"id", ids_.at(token)},
                       {"content", token},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
    const bool split = !settings_.expression.empty();
    const nlohmann::ordered_json bytes = {{"type", "ByteLevel"},
                                          {"add_prefix_space", settings_.add_prefix_space},
                                          {"trim_offsets", true},
                                          {"use_regex", !split}};
    nlohmann::ordered_json pre = bytes;
    if (split)
      pre = {{"type", "Sequence"},
             {"pretokenizers",
              {{{"type", "Split"},
                {"pattern", {{"Regex", settings_.expression}}},
                {"behavior", "Isolated"},
                {"invert", false}},
               bytes}}};
    const nlohmann::ordered_json head = {{"version", "1.0"},        {"truncation", nullptr}, {"padding", nullptr},
                                         {"added_tokens", added},   {"normalizer", nullptr}, {"pre_tokenizer", pre},
                                         {"post_processor", bytes}, {"decoder", bytes}};
    std::string text = head.dump(2);
    text.resize(text.size() - 2);  // without the line end and the last brace
    // Written by hand: an ordered object of nlohmann-json needs quadratic time.
    const auto quoted = [](const std::string& token) { return nlohmann::json(token).dump(); };
    text +=
        ",\n  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
        "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n"
        "    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n    \"vocab\": {";
    for (size_t id = 0; id < tokens_.size(); ++id)
      text += fmt::format("{}\n      {}: {}", id > 0 ? "," : "", quoted(tokens_[id]), id);
    text += "\n    },\n    \"merges\": [";
    for (size_t i = 0; i < merges_.size(); ++i)
      text +=
          fmt::format("{}\n      [{}, {}]", i > 0 ? "," : "", quoted(tokens_[static_cast<size_t>(merges_[i].first)]),
                      quoted(tokens_[static_cast<size_t>(merges_[i].second)]));
    return text + "\n    ]\n  }\n}\n";
  }

 private:
  int32_t add_token(const std::string& token) {
    const auto [found, is_new] = ids_.emplace(token, static_cast<int32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(token);
    return found->second;
  }
  void change(Pair pair, int64_t count, uint32_t word) {
    counts_[pair] += count;
    if (count > 0 && (changed_[pair].empty() || changed_[pair].back() != word)) changed_[pair].push_back(word);
  }
  void offer_changed() {
    for (auto& [pair, words] : changed_)
      if (const int64_t count = counts_[pair]; count > 0) queue_.push({pair, count, std::move(words)});
    changed_.clear();
  }

  void join(const Candidate& candidate) {
    const auto left = static_cast<int32_t>(candidate.pair >> 32), right = static_cast<int32_t>(candidate.pair);
    const int32_t joined = add_token(tokens_[static_cast<size_t>(left)] + tokens_[static_cast<size_t>(right)]);
    merges_.emplace_back(left, right);
    std::unordered_set<uint32_t> seen;
    for (uint32_t w : candidate.words)
      if (seen.insert(w).second) join_in(w, left, right, joined);
    offer_changed();
  }
  void join_in(uint32_t w, int32_t left, int32_t right, int32_t joined) {
    auto& symbols = words_[w].symbols;
    const int64_t count = words_[w].count;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      if (symbols[i] != left || symbols[i + 1] != right) continue;
      if (i > 0) {
        change(pair_of(symbols[i - 1], left), -count, w);
        change(pair_of(symbols[i - 1], joined), count, w);
      }
      if (i + 2 < symbols.size()) {
        change(pair_of(right, symbols[i + 2]), -count, w);
        change(pair_of(joined, symbols[i + 2]), count, w);
      }
      symbols[i] = joined;
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(i) + 1);
    }
  }

  const BpeTraining& settings_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<Word> words_;
  std::unordered_map<Pair, int64_t> counts_;
  std::unordered_map<Pair, std::vector<uint32_t>> changed_;
  std::priority_queue<Candidate> queue_;
  std::vector<std::pair<int32_t, int32_t>> merges_;
};

}  // namespace

std::string train_bpe(const BpeTraining& settings, const TextSource& texts) {
  try {
    Trainer trainer(settings, texts);
    trainer.run();
    return trainer.json();
  } catch (const std::invalid_argument& error) {
    throw usage_error("the expression for words: {}", error.what());
  }
}

}  // namespace runner
