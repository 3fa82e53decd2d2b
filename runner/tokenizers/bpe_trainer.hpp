// Trains byte-level BPE (Sennrich et al. 2016) as the tokenizers library's BpeTrainer does, and writes tokenizer.json.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runner/tokenizers/tokenizer.hpp"

namespace runner {

struct BpeTraining {
  int64_t vocab_size = 30000;  ///< special tokens, 256 bytes and merges; fewer if the text has no more pairs
  int64_t min_frequency = 0;   ///< pairs that are rarer are not merged
  std::vector<std::string> special_tokens;  ///< get the first ids
  bool add_prefix_space = false;            ///< only without an expression
  std::string expression;                   ///< cuts words, as the pre-tokenizer Split; empty: ByteLevel's own (GPT-2)
};

/// Gives the texts one after another: each call is one, and returns false after the last. Words do not go across texts.
using TextSource = std::function<bool(std::string& text)>;

/// The content of tokenizer.json. The merges are those of the library for the same texts: of the most frequent pairs the one with
/// the lowest ids is joined. Throws Error(usage) if vocab_size has no room for the bytes and special tokens, for an expression that
/// is not supported, and for text that is not UTF-8.
std::string train_bpe(const BpeTraining& settings, const TextSource& texts);

}  // namespace runner
