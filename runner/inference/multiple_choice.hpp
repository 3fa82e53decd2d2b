// Multiple choice as lm-evaluation-harness scores it: the choice with the greatest sum of log-probabilities is the prediction.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace runner {

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
