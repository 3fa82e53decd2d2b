// A language model for inference: logits of the next token, and losses of given tokens.
#pragma once
#include <span>
#include <vector>

#include "runner/inference/loaded_model.hpp"
#include "runner/models/key_value_cache.hpp"

namespace runner {

class LanguageModel : public LoadedModel {
 public:
  LanguageModel(const LoadRequest& request, StoredModel stored) : LoadedModel(request, std::move(stored)) {}

  int64_t vocab_size() const { return stored().spec.vocab_size; }
  int64_t max_seq_len() const { return settings().max_seq_len; }

  /// Throws Error(usage) for a model that does not predict the next token.
  KeyValueCache new_cache(std::vector<int64_t> padding) const;
  /// Reads new columns of the cache's sequences: tokens [rows, columns], row by row. Returns the logits after the last one,
  /// [rows, vocab_size], fp32 in host memory.
  torch::Tensor next_logits(std::span<const int64_t> tokens, KeyValueCache& cache) const;

  /// For each target that is not ignored, in order: the log-probability, and whether it is the most probable token.
  struct Scores {
    std::vector<double> log_probabilities;
    std::vector<bool> greedy;
  };
  /// A batch of tokens with targets: token_fields() or packed_fields().
  Scores score(const HostBatch& batch) const;
};

}  // namespace runner
