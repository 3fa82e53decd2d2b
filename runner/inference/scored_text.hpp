// Texts that a model scores, by the rules of lm-evaluation-harness (api/model.py, models/huggingface.py, utils.py): a context, and the
// continuation whose log-probabilities are summed. Torch-free.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runner/tokenizers/tokenizer.hpp"

namespace runner {

/// The log-probabilities of `continuation` after `context` are wanted. The context has at least one token.
struct ScoredTokens {
  std::vector<int32_t> context, continuation;
};

/// Context and continuation are encoded together, and cut at the length of the context alone. Spaces at the end of the context belong to
/// the continuation. An empty context is the token that begins texts. No special tokens are added.
ScoredTokens encode_pair(const Tokenizer& tokenizer, std::string context, std::string continuation);

/// The token that begins texts: BOS, otherwise EOS, otherwise token 0.
int32_t first_token(const Tokenizer& tokenizer);

/// Windows of at most `length` inputs in which each token is predicted once. The first window begins with `first`. A window shares
/// `context` - 1 tokens with the one before it, the last one as many as fit.
std::vector<ScoredTokens> rolling_windows(const std::vector<int32_t>& tokens, int32_t first, int64_t length,
                                          int64_t context = 1);

/// Inputs and targets of a model that reads at most `length` tokens: the beginning is cut off.
struct ModelRow {
  std::vector<int64_t> inputs, targets;  ///< targets of the context are ignored
};
ModelRow row_of(const ScoredTokens& scored, int64_t length);

/// Sums over texts.
struct TextSizes {
  int64_t tokens = 0, words = 0, bytes = 0;
  void add(std::string_view text);
};
/// The number of words as Python's len(re.split(r"\s+", text)) counts them: one more than the runs of white space.
int64_t count_words(std::string_view text);

}  // namespace runner
