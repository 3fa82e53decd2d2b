#include "strategies/program/split_backward.hpp"

#include <algorithm>

namespace runner {

bool is_later(const BlockSpec& block, const ParameterSpec& parameter) {
  return block.kind == BlockKind::transformer && parameter.trainable && parameter.shape.size() == 2;
}

bool has_later_products(const BlockSpec& block) {
  return std::ranges::any_of(block.parameters, [&](const auto& parameter) { return is_later(block, parameter); });
}

double weight_flops_per_token(const ModelSpec& model, size_t block) {
  double flops = 0;
  if (block < model.first_trained_block()) return flops;
  for (const auto& parameter : model.blocks[block].parameters)
    if (is_later(model.blocks[block], parameter)) flops += 2 * static_cast<double>(parameter.numel());
  return flops;
}

}  // namespace runner
