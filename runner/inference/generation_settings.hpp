// How texts are generated: the settings that a user gives, the defaults of a model's folder, and what follows from both.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/tokenizers/tokenizer.hpp"

namespace runner {

/// The defaults of the verbs for max_new_tokens.
inline constexpr int64_t chat_new_tokens = 1024, generate_new_tokens = 256, predict_new_tokens = 256;

/// The settings of the user. Unset values are those of generation_config.json, or defaults.
struct GenerationRequest {
  std::optional<int64_t> max_new_tokens = {}, top_k = {};
  std::optional<double> temperature = {}, top_p = {}, min_p = {}, repetition_penalty = {};
  std::vector<std::string> stop = {};
  bool ignore_eos = false;
};
void to_json(nlohmann::json& json, const GenerationRequest& request);
void from_json(const nlohmann::json& json, GenerationRequest& request);

/// How a token is drawn. The rules apply in this order: repetition_penalty, temperature, top_k, top_p, min_p (transformers, generation/).
struct SamplingRules {
  double temperature = 0;  ///< 0: the token with the greatest logit
  int64_t top_k = 0;       ///< only the k tokens with the greatest logits; 0: all
  double top_p = 1;        ///< only the smallest set of tokens whose probabilities reach it
  double min_p = 0;        ///< only tokens with at least this share of the greatest probability
  /// Positive logits of tokens that the sequence has are divided by it, and negative ones are multiplied.
  double repetition_penalty = 1;
};

struct GenerationSettings {
  int64_t max_new_tokens = 0;
  SamplingRules sampling = {};
  std::vector<int32_t> eos = {};       ///< a sequence ends before one of them
  std::vector<std::string> stop = {};  ///< a text ends before one of them; they may span tokens
};

/// generation_config.json of `folder` gives defaults: max_new_tokens, do_sample, temperature, top_k, top_p, min_p,
/// repetition_penalty, eos_token_id (a number or a list). Sampling options of the user without a temperature mean temperature 1. Without
/// both, tokens are not drawn: temperature 0. Without eos_token_id there, the end is that of config.json or of the tokenizer.
/// `default_new_tokens`: if nobody sets max_new_tokens. Throws Error(usage) for a value out of range.
GenerationSettings generation_settings(const GenerationRequest& request, const fs::path& folder,
                                       const Tokenizer& tokenizer, int64_t default_new_tokens);

/// bos_token_id of config.json in a model's folder, if it is not negative. Throws Error(usage) if it is no whole number.
std::optional<int64_t> configured_bos(const fs::path& folder);

}  // namespace runner
