#include "runner/models/sequences.hpp"

#include "runner/base/error.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

PositionsField::PositionsField(const ModelSpec& model) {
  for (size_t i = 0; i < model.batch.size(); ++i)
    if (model.batch[i].name == token_field::positions_name) field_ = i;
}

TokenPositions PositionsField::of(const MicroBatch& batch) const {
  const auto field = batch.padded_tokens > 0 ? token_field::positions : field_;
  if (!field) return {};
  return {.on_device = batch.fields[*field], .on_host = batch.host_fields[*field]};
}

std::vector<Sequence> sequences_of(int64_t rows, int64_t length, const torch::Tensor& positions) {
  std::vector<Sequence> sequences;
  if (!positions.defined()) {
    for (int64_t row = 0; row < rows; ++row) sequences.push_back({.row = row, .first = 0, .length = length});
    return sequences;
  }
  RUNNER_CHECK(positions.is_contiguous() && positions.size(0) == rows && positions.size(1) == length);
  const auto* position = positions.data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t t = 0; t < length; ++t, ++position) {
      if (t == 0 || *position == 0) sequences.push_back({.row = row, .first = t, .length = 0});
      ++sequences.back().length;
    }
  return sequences;
}

}  // namespace runner
