#include "strategies/contract/flat_layout.hpp"

#include <algorithm>

#include "runner/base/round_up.hpp"
#include "strategies/contract/nf4.hpp"

namespace runner {

namespace {

bool is_summed(const ParameterSpec& parameter) { return parameter.part && parameter.part->sums_replicas; }

/// The order in which parameters are in a buffer: first those whose gradients are sums over replicas.
std::vector<size_t> in_order(const Parameters& parameters, std::vector<size_t> slots) {
  std::ranges::stable_partition(slots, [&](size_t slot) { return is_summed(*parameters[slot]); });
  return slots;
}

}  // namespace

int64_t elements_of(const Parameters& parameters, const std::vector<size_t>& slots) {
  int64_t sum = 0;
  for (const size_t slot : slots) sum += parameters.at(slot)->numel();
  return sum;
}

FlatLayout make_flat_layout(const Parameters& parameters, const std::vector<size_t>& slots, int shards,
                            int64_t alignment) {
  FlatLayout layout;
  layout.items.reserve(slots.size());
  for (const size_t slot : in_order(parameters, slots)) {
    const auto& parameter = *parameters.at(slot);
    if (parameter.quantized) alignment = std::max(alignment, nf4_block);
    layout.items.push_back({slot, layout.total, parameter.numel()});
    layout.total += round_up(parameter.numel(), alignment);
    if (is_summed(parameter)) layout.summed = layout.total;
  }
  layout.total = round_up(layout.total, shards * alignment);
  layout.shard = layout.total / shards;
  return layout;
}

}  // namespace runner
