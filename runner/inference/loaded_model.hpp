// A stored model in memory, for forward passes without gradients, a language model among them, and its tokenizer.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runner/checkpoint/stored_model.hpp"
#include "runner/inference/request.hpp"
#include "runner/models/key_value_cache.hpp"
#include "runner/tokenizers/tokenizer.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/module.hpp"
#include "strategies/engine/host_batch.hpp"

namespace runner {

/// Weights that have the wanted dtype in a mapped file stay there: they are read when they are used, and not copied.
class LoadedModel {
 public:
  enum class Head { needed, left_out };
  /// Throws Error(usage) if the head is needed and the folder has none.
  LoadedModel(const LoadRequest& request, StoredModel stored, Head head = Head::needed);

  const StoredModel& stored() const { return stored_; }
  const Recipe::Model& settings() const { return stored_.recipe.model; }
  torch::Device device() const { return device_; }
  torch::ScalarType dtype() const { return dtype_; }

  /// The fields that the model needs, by their names. Those that the batch does not have are undefined: without positions, a row is one
  /// sequence. Throws Error(usage) for a token that the model does not know.
  MicroBatch micro_batch(const HostBatch& batch) const;

  /// The output of the last block.
  torch::Tensor run(const MicroBatch& batch, ForwardContext context) const;
  /// The output of the block before the head.
  torch::Tensor hidden_states(const MicroBatch& batch) const;

  /// Why a result is not finite: the names of the weights that are not, otherwise the outputs.
  std::string not_finite() const;
  /// A warning if a result, such as "the loss", is not finite.
  void warn_not_finite(const std::string& what, double value) const;

 private:
  torch::Tensor forward(size_t blocks, const MicroBatch& batch, ForwardContext context) const;

  StoredModel stored_;
  torch::Device device_;
  torch::ScalarType dtype_;
  std::unique_ptr<Model> model_;
};

/// A language model: logits of the next token, and losses of given tokens.
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

/// Opens the tokenizer that the model was trained with. `cache_dir`: of tokenizers that are trained. Throws Error(usage) if it is missing,
/// or has changed since the training: its ids would mean other tokens.
std::unique_ptr<Tokenizer> open_model_tokenizer(const StoredModel& model, const std::string& cache_dir);

}  // namespace runner
