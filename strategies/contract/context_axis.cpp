#include "strategies/contract/context_axis.hpp"

#include "runner/base/error.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

using torch::Tensor;

ContextAxis::ContextAxis(ProcessGroup group, ContextDivision division, ContextRing ring)
    : group_(std::move(group)), division_(division), ring_(std::move(ring)) {
  RUNNER_CHECK(group_->getSize() == division_.ranks && group_->getRank() == division_.rank);
  RUNNER_CHECK(division_.form != ContextForm::ring || (ring_.to_next && ring_.from_previous));
}

MicroBatch cut_tokens(const std::vector<Tensor>& fields, const ContextDivision& division) {
  const auto& inputs = fields[token_field::inputs];
  const int64_t rows = inputs.size(0), tokens = inputs.size(1), padding = division.padded(tokens) - tokens;
  MicroBatch batch{.rows = rows, .padded_tokens = tokens + padding, .row_tokens = tokens};
  const auto own = [&](const Tensor& all) {
    std::vector<Tensor> parts;
    const auto chunks = all.view({rows, division.chunks(), -1});
    for (const int64_t chunk : division.chunks_of(division.rank)) parts.push_back(chunks.select(1, chunk));
    return at::cat(parts, 1);
  };
  const auto padded = [&](const Tensor& all, int64_t value) {
    return at::constant_pad_nd(all, {0, padding}, value).contiguous();
  };
  const auto count = [&](int64_t n) { return at::arange(n, inputs.options()).expand({rows, n}); };
  const bool packed = fields.size() > token_field::positions;
  const auto positions = at::cat({packed ? fields[token_field::positions] : count(tokens), count(padding)}, 1);
  if (packed) batch.all_positions = positions;
  batch.host_fields = {own(padded(inputs, 0)), own(padded(fields[token_field::targets], ignored_target)),
                       own(positions)};
  return batch;
}

}  // namespace runner
