#include "runner/inference/scorer.hpp"

#include <algorithm>
#include <numeric>

#include "strategies/engine/token_batch.hpp"

namespace runner {

namespace {

/// The rows, padded on the right.
HostBatch padded(const std::vector<ModelRow>& rows) {
  size_t longest = 0;
  for (const auto& row : rows) longest = std::max(longest, row.inputs.size());
  HostBatch batch(std::ssize(rows), token_fields(static_cast<int64_t>(longest)));
  std::ranges::fill(batch.values<int64_t>(token_field::targets), ignored_target);
  for (size_t r = 0; r < rows.size(); ++r) {
    std::ranges::copy(rows[r].inputs, batch.row<int64_t>(token_field::inputs, static_cast<int64_t>(r)).begin());
    std::ranges::copy(rows[r].targets, batch.row<int64_t>(token_field::targets, static_cast<int64_t>(r)).begin());
  }
  return batch;
}

}  // namespace

std::vector<ContinuationScore> score_rows(const LanguageModel& model, const HostBatch& batch) {
  const auto all = model.score(batch);
  std::vector<ContinuationScore> scores(static_cast<size_t>(batch.rows));
  size_t place = 0;
  for (int64_t r = 0; r < batch.rows; ++r)
    for (const int64_t target : batch.row<int64_t>(token_field::targets, r)) {
      if (target == ignored_target) continue;
      auto& score = scores[static_cast<size_t>(r)];
      const bool hit = all.greedy[place];
      score.log_probability += all.log_probabilities[place++];
      score.greedy = score.greedy && hit;
      score.hits += hit;
      ++score.tokens;
    }
  return scores;
}

std::vector<ContinuationScore> score_all(const LanguageModel& model, const std::vector<ScoredTokens>& texts,
                                         int64_t batch_size, const std::function<void(int64_t)>& progress) {
  std::vector<ModelRow> rows;
  for (const auto& text : texts) rows.push_back(row_of(text, model.max_seq_len()));
  std::vector<size_t> order(texts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return rows[i].inputs.size(); });
  std::vector<ContinuationScore> scores(texts.size());
  const auto step = static_cast<size_t>(batch_size);
  for (size_t first = 0; first < order.size(); first += step) {
    const size_t end = std::min(first + step, order.size());
    std::vector<ModelRow> batch;
    for (size_t i = first; i < end; ++i) batch.push_back(std::move(rows[order[i]]));
    const auto of_batch = score_rows(model, padded(batch));
    for (size_t i = first; i < end; ++i) scores[order[i]] = of_batch[i - first];
    if (progress) progress(static_cast<int64_t>(end));
  }
  return scores;
}

}  // namespace runner
