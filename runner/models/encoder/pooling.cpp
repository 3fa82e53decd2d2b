#include "runner/models/encoder/pooling.hpp"

namespace runner::encoder {

torch::Tensor pooled(const torch::Tensor& hidden, const TokenPositions& positions, Pooling pooling) {
  const auto states = hidden.to(torch::kFloat32);
  if (pooling == Pooling::cls) return states.select(1, 0);
  if (!positions.packed()) return states.mean(1);
  const auto of_first = positions.on_device.eq(0).cumsum(1).eq(1).unsqueeze(-1).to(torch::kFloat32);
  return (states * of_first).sum(1) / of_first.sum(1);
}

}  // namespace runner::encoder
