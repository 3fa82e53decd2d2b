// Log-probabilities of continuations, in batches.
#pragma once
#include <functional>
#include <vector>

#include "runner/inference/language_model.hpp"
#include "runner/inference/scored_text.hpp"

namespace runner {

struct ContinuationScore {
  double log_probability = 0;  ///< the sum over its tokens
  bool greedy = true;          ///< every token is the most probable one
  int64_t tokens = 0;
  int64_t hits = 0;  ///< tokens that are the most probable ones

  void add(const ContinuationScore& other) {
    log_probability += other.log_probability;
    greedy = greedy && other.greedy;
    tokens += other.tokens;
    hits += other.hits;
  }
};

/// In the order of `texts`. The longest are computed first, in batches of `batch_size` that are padded on the right. `progress` gets the
/// number of texts that are done.
std::vector<ContinuationScore> score_all(const LanguageModel& model, const std::vector<ScoredTokens>& texts,
                                         int64_t batch_size, const std::function<void(int64_t)>& progress = {});

/// The scores of the rows of a batch of tokens with targets.
std::vector<ContinuationScore> score_rows(const LanguageModel& model, const HostBatch& batch);

}  // namespace runner
