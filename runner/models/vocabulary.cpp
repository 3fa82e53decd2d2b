#include "runner/models/vocabulary.hpp"

namespace runner {

using torch::Tensor;

std::vector<int64_t> VocabularyPart::sizes() const {
  const int ranks = axis ? axis->size() : 1;
  std::vector<int64_t> all;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto [first, end] = share_of(tokens, ranks, rank);
    all.push_back(end - first);
  }
  return all;
}

/// Tokens of other ranks have rows of zeros, so that the sum over the ranks has the row of the rank with the token.
Tensor embedded(const Tensor& table, const Tensor& ids, const VocabularyPart& part) {
  if (!part.axis) return at::embedding(table, ids);
  const auto index = ids.reshape(-1) - part.first();
  const auto elsewhere = index.lt(0).logical_or_(index.ge(table.size(0)));
  auto rows = at::embedding(table, index.masked_fill(elsewhere, 0)).masked_fill_(elsewhere.unsqueeze(1), 0);
  return part.axis->leave(std::move(rows));
}

Tensor as_output(const Tensor& stream, const Tensor& ids, const TensorAxis* axis) {
  if (!axis || axis->division().divides_rows()) return stream;
  return stream.view({ids.size(0), ids.size(1), stream.size(1)});
}

}  // namespace runner
