#include "strategies/contract/flat_layout.hpp"

#include <algorithm>

#include "runner/base/round_up.hpp"
#include "strategies/contract/nf4.hpp"

namespace runner {

namespace {

/// Calls `with` with each parameter in `slots`. Ascending slots need only one pass over the blocks.
template <typename With>
void for_each_parameter(const ModelSpec& model, const std::vector<size_t>& slots, With&& with) {
  size_t block = 0, first = 0;  // the current block, and the slot of its first parameter
  for (size_t slot : slots) {
    if (slot < first) block = first = 0;
    while (slot - first >= model.blocks.at(block).parameters.size()) first += model.blocks[block++].parameters.size();
    with(model.blocks[block].parameters[slot - first]);
  }
}

/// The order in which parameters are in a buffer: first those whose gradients are sums over replicas.
std::vector<size_t> in_order(const ModelSpec& model, const std::vector<size_t>& slots) {
  if (!model.division.divides()) return slots;
  std::vector<size_t> summed, others;
  size_t next = 0;
  for_each_parameter(model, slots, [&](const ParameterSpec& parameter) {
    (parameter.part->sums_replicas ? summed : others).push_back(slots[next++]);
  });
  summed.insert(summed.end(), others.begin(), others.end());
  return summed;
}

}  // namespace

int64_t elements_of(const ModelSpec& model, const std::vector<size_t>& slots) {
  int64_t sum = 0;
  for_each_parameter(model, slots, [&](const ParameterSpec& parameter) { sum += parameter.numel(); });
  return sum;
}

FlatLayout make_flat_layout(const ModelSpec& model, const std::vector<size_t>& given, int shards, int64_t alignment) {
  FlatLayout layout;
  const auto slots = in_order(model, given);
  layout.items.reserve(slots.size());
  for_each_parameter(model, slots, [&](const ParameterSpec& parameter) {
    if (parameter.quantized) alignment = std::max(alignment, nf4_block);
    layout.items.push_back({slots[layout.items.size()], layout.total, parameter.numel()});
    layout.total += round_up(parameter.numel(), alignment);
    if (parameter.part && parameter.part->sums_replicas) layout.summed = layout.total;
  });
  layout.total = round_up(layout.total, shards * alignment);
  layout.shard = layout.total / shards;
  return layout;
}

}  // namespace runner
