// `hpu` and `ipu`: Gaudi and Graphcore devices. There is no backend for them; with devices.simulate, CPU processes with replicas take their
// place.
//
// Source: Lightning 1.9's HPUParallelStrategy, SingleHPUStrategy, HPUPrecisionPlugin and IPUStrategy; Lightning-Habana 5549fa9;
// Lightning-Graphcore 264afac.
#include <fmt/format.h>

#include <bit>

#include "strategies/contract/gradient_buckets.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner {

namespace {

std::optional<std::string> refuse_ipu(const Job& job) {
  const auto replicas = static_cast<uint64_t>(job.data_ranks());
  if (std::has_single_bit(replicas)) return std::nullopt;
  return fmt::format("the replicas of a model on IPUs are a power of two, not {}: set devices.devices to {} or {}",
                     replicas, std::bit_floor(replicas), std::bit_ceil(replicas));
}

}  // namespace

Entry ipu_entry() {
  auto entry = simulated_entry("ipu", "Graphcore devices (IPU).", "for Graphcore devices, and needs Poplar",
                               "ddp trains replicas and pipeline divides the blocks");
  for (const char* name : {"ipu_strategy", "IPUStrategy"}) entry.aliases.push_back({name});
  entry.options = strategy_options({bucket_cap_option()});
  entry.refuse = refuse_ipu;
  return entry;
}

Entry hpu_entry() {
  auto entry = simulated_entry("hpu", "Gaudi devices (HPU).", "for Gaudi devices, and needs Intel's Gaudi software",
                               "ddp trains replicas");
  for (const char* name : {"hpu_parallel", "HPUParallelStrategy", "hpu_ddp"}) entry.aliases.push_back({name});
  for (const char* name : {"hpu_single", "SingleHPUStrategy"})
    entry.aliases.push_back({name, nlohmann::json::object(), "it has one device, so set devices.devices = 1"});
  entry.options = strategy_options(options_without_effect());
  entry.options.push_back({bucket_cap_option()});
  return entry;
}

}  // namespace runner
