// `hpu`: Gaudi devices. There is no backend for them; with devices.simulate, CPU processes with replicas take their place.
//
// Source: Lightning 1.9's HPUParallelStrategy, SingleHPUStrategy and HPUPrecisionPlugin; Lightning-Habana 5549fa9.
#include "strategies/contract/gradient_buckets.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner {

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
