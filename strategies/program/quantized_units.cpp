// Units of parameters in NF4: how they are taken out of a plan's units, and their bytes.
#include <algorithm>
#include <map>

#include "strategies/contract/quantized_source.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner {

namespace {

/// For each parameter, whether it is quantized, and its block.
struct QuantizedSlots {
  std::vector<bool> quantized;
  std::vector<size_t> block;

  explicit QuantizedSlots(const ModelSpec& model) {
    for (size_t b = 0; b < model.blocks.size(); ++b)
      for (const auto& parameter : model.blocks[b].parameters) {
        quantized.push_back(parameter.quantized);
        block.push_back(b);
      }
  }
};

/// Removes the quantized parameters of `unit`, and returns units of them.
std::vector<Unit> take_quantized(const ModelSpec& model, const ParallelPlan& plan, const QuantizedSlots& slots,
                                 Unit& unit) {
  std::vector<Unit> taken;
  std::map<std::string, size_t> index;  // by the name of the block or layer
  for (size_t slot : unit.slots) {
    if (!slots.quantized[slot]) continue;
    const size_t block = slots.block[slot];
    const auto& spec = model.blocks[block];
    const auto [where, fresh] = index.try_emplace(unit.resident ? spec.name : spec.layer_name(), taken.size());
    if (fresh) {
      // NVMe is for what does not fit into host memory.
      const Tier tier = unit.tier != Tier::nvme ? unit.tier : plan.separate_host ? Tier::host : Tier::device;
      taken.push_back({.slots = {},
                       .replicated = plan.shards() > 1 && unit.resident,
                       .frozen = true,
                       .quantized = true,
                       .first_needed_in_backward = block,
                       .tier = tier});
    }
    auto& own = taken[where->second];
    own.slots.push_back(slot);
    if (own.blocks.empty() || own.blocks.back() != block) own.blocks.push_back(block);
  }
  std::erase_if(unit.slots, [&](size_t slot) { return slots.quantized[slot]; });
  return taken;
}

}  // namespace

void quantize_units(const Job& job, ParallelPlan& plan) {
  plan.compute = job.precision.compute;
  if (!job.model->quantization) return;
  const QuantizedSlots slots(*job.model);
  std::vector<Unit> quantized;
  for (auto& unit : plan.units)
    for (auto& own : take_quantized(*job.model, plan, slots, unit)) quantized.push_back(std::move(own));
  std::erase_if(plan.units, [](const Unit& unit) { return unit.slots.empty(); });
  for (auto& unit : quantized) plan.units.push_back(std::move(unit));
}

QuantizedBytes quantized_bytes(const Job& job, const ParallelPlan& plan, const Unit& unit) {
  const auto& spec = *job.model->quantization;
  const FlatLayout layout = layout_of(*job.model, plan, unit);
  const int64_t shards = layout.total / layout.shard;
  QuantizedBytes bytes{.shard = nf4_bytes(spec, layout.shard)};
  if (shards > 1) bytes.sent = shards * bytes.shard;
  if (spec.double_quantization) {
    for (const auto& item : layout.items) bytes.constants += (nf4_blocks(item.numel) + nf4_group - 1) / nf4_group * 4;
    // All factors in fp32, and those of one shard as indices and as values.
    bytes.scratch += (layout.total + 2 * layout.shard) / nf4_block * 4;
  }
  if (!job.accelerator.host_kernels) {
    const int64_t elements = std::min(layout.shard, nf4_elements_at_once);
    bytes.scratch += elements / 2 * 4 + elements * 4;  // codes as indices, and their values
  }
  if (unit.tier == Tier::host && shards == 1) bytes.sent = bytes.shard;  // a copy on the device
  return bytes;
}

}  // namespace runner
