// A stored model in memory, for inference: logits of the next token, and losses of given tokens.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runner/checkpoint/stored_model.hpp"
#include "runner/inference/request.hpp"
#include "runner/models/key_value_cache.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/module.hpp"

namespace runner {

/// Weights that have the wanted dtype in a mapped file stay there: they are read when they are used, and not copied.
class LanguageModel {
 public:
  explicit LanguageModel(const LoadRequest& request);

  const StoredModel& stored() const { return stored_; }
  const Recipe::Model& settings() const { return stored_.recipe.model; }
  int64_t vocab_size() const { return stored_.spec.vocab_size; }
  int64_t max_seq_len() const { return settings().max_seq_len; }
  torch::ScalarType dtype() const { return dtype_; }

  KeyValueCache new_cache(std::vector<int64_t> padding) const;
  /// Reads new columns of the cache's sequences: tokens [rows, columns], row by row. Returns the logits after the last one,
  /// [rows, vocab_size], fp32 in host memory.
  torch::Tensor next_logits(std::span<const int64_t> tokens, KeyValueCache& cache) const;

  /// For each target that is not ignored, in order: the log-probability, and whether it is the most probable token.
  struct Scores {
    std::vector<double> log_probabilities;
    std::vector<bool> greedy;
  };
  /// inputs and targets [rows, length], row by row. Rows may be padded on the right, with ignored targets.
  Scores score(int64_t rows, std::span<const int64_t> inputs, std::span<const int64_t> targets) const;

 private:
  torch::Tensor run(const MicroBatch& batch, ForwardContext context) const;

  StoredModel stored_;
  torch::Device device_;
  torch::ScalarType dtype_;
  std::unique_ptr<Model> model_;
};

}  // namespace runner
