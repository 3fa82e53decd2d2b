#include "runner/models/pooling.hpp"

namespace runner {

using torch::Tensor;

namespace {

/// Which tokens belong to the first sequence of their row, [B, T].
Tensor of_first_sequence(const TokenPositions& positions) { return positions.on_device.eq(0).cumsum(1).eq(1); }

}  // namespace

Tensor pooled(const Tensor& hidden, const TokenPositions& positions, Pooling pooling) {
  if (pooling == Pooling::last) return last_states(hidden, positions).to(torch::kFloat32);
  const auto states = hidden.to(torch::kFloat32);
  if (pooling == Pooling::cls) return states.select(1, 0);
  if (!positions.packed()) return states.mean(1);
  const auto counted = of_first_sequence(positions).unsqueeze(-1).to(torch::kFloat32);
  return (states * counted).sum(1) / counted.sum(1);
}

Tensor last_states(const Tensor& hidden, const TokenPositions& positions) {
  const int64_t rows = hidden.size(0), length = hidden.size(1);
  if (!positions.packed()) return hidden.select(1, length - 1).contiguous();
  const auto lengths = of_first_sequence(positions).sum(1);
  const auto index = at::arange(rows, lengths.options()) * length + lengths - 1;
  return hidden.reshape({rows * length, hidden.size(2)}).index_select(0, index);
}

}  // namespace runner
