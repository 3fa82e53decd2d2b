// Texts that a model scores, by the rules of lm-evaluation-harness (api/model.py, models/huggingface.py, utils.py): a context, and the
// continuation whose log-probabilities are summed. Torch-free.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
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
ScoredTokens encode_pair(const Tokenizer& tokenizer, std::string context, std::string continuation,
                         const fs::path& folder = {});

/// The token that begins texts: the tokenizer's BOS, otherwise its EOS, otherwise bos_token_id of config.json in the model's folder,
/// otherwise token 0.
int32_t first_token(const Tokenizer& tokenizer, const fs::path& folder);

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

/// A record of multiple choice: the choice with the greatest sum of log-probabilities is the prediction.
struct ChoiceRecord {
  nlohmann::ordered_json id = nullptr;  ///< record_id(): that of the record, or its number from 0
  std::string context = {};
  std::vector<std::string> choices = {};
  int64_t label = 0;
};

/// Reads one line of a file: `context`, `question`, `query` or `ctx` (a text), `choices` or `endings` (texts; also
/// {"text": [..], "label": [..]}, as ARC has them), and `label`, `answer`, `gold` or `answerKey`: one of the labels of the choices if
/// they have any; otherwise the text of a choice, a letter, or an index. Throws Error(usage) that begins with `place`.
ChoiceRecord choice_record(const std::string& line, const std::string& place, int64_t number);

/// The predicted choice by each rule. Of equal scores, the first choice wins, as with numpy's argmax.
struct ChoicePrediction {
  int64_t sum = 0;         ///< acc
  int64_t characters = 0;  ///< acc_norm: divided by the characters of the choice
  int64_t bytes = 0;       ///< acc_bytes: divided by its UTF-8 bytes
  int64_t tokens = 0;      ///< acc_tokens: divided by its tokens (llm.c)
};
ChoicePrediction predict_choice(const ChoiceRecord& record, const std::vector<double>& log_probabilities,
                                const std::vector<int64_t>& token_counts);

/// The mean of 0s and 1s, and its standard error: the sample's standard deviation / sqrt(n); nothing for one value.
struct Share {
  double mean = 0;
  std::optional<double> standard_error = {};
};
Share share_of(int64_t hits, int64_t count);

}  // namespace runner
