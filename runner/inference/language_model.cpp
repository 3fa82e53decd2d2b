#include "runner/inference/language_model.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/config/model_families.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

using torch::Tensor;

KeyValueCache LanguageModel::new_cache(std::vector<int64_t> padding) const {
  if (settings().name == "plugin")
    throw usage_error(
        "the model of a plug-in keeps no keys and values of earlier tokens, so it cannot generate text; `runner "
        "evaluate` measures it");
  if (labels_texts(settings()))
    throw usage_error(
        "{} predicts labels or numbers of texts, so it cannot generate text; `runner predict` writes them",
        settings().name);
  if (family_kind(settings().name) == "encoder")
    throw usage_error(
        "{} predicts hidden tokens, not the next one, so it cannot generate text; `runner evaluate` measures it, and "
        "`runner embed` writes embeddings",
        settings().name);
  return {KeyValueCache::Shape::of(settings()), torch::TensorOptions().dtype(dtype()).device(device()),
          std::move(padding)};
}

Tensor LanguageModel::next_logits(std::span<const int64_t> tokens, KeyValueCache& cache) const {
  const torch::InferenceMode inference;
  const int64_t rows = cache.rows(), columns = std::ssize(tokens) / rows;
  HostBatch host(rows, {token_fields(columns).at(token_field::inputs)});
  std::ranges::copy(tokens, host.values<int64_t>(token_field::inputs).begin());
  auto batch = micro_batch(host);
  cache.begin(columns);
  auto logits = run(batch, {.logits_of = columns - 1, .cache = &cache});
  cache.end();
  return logits.to(torch::kCPU);
}

LanguageModel::Scores LanguageModel::score(const HostBatch& batch) const {
  const torch::InferenceMode inference;
  Scores scores;
  const TokenLoss collect = [&](const Tensor& logits, const Tensor& of_tokens) {
    const auto log_probabilities = at::log_softmax(logits, -1);
    const auto chosen = log_probabilities.gather(1, of_tokens.unsqueeze(1)).squeeze(1);
    const auto values = chosen.to(torch::kCPU, torch::kFloat64), greedy = logits.argmax(-1).eq(of_tokens).cpu();
    for (int64_t i = 0; i < values.numel(); ++i) {
      scores.log_probabilities.push_back(values.data_ptr<double>()[i]);
      scores.greedy.push_back(greedy.data_ptr<bool>()[i]);
    }
    return -chosen;
  };
  run(micro_batch(batch), {.token_loss = &collect});
  return scores;
}

}  // namespace runner
