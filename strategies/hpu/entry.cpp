#include "strategies/hpu/entry.hpp"

#include "strategies/contract/gradient_buckets.hpp"

namespace runner {

namespace {

/// Of the plugins for mixed precision of Habana and Apex.
std::vector<ForeignName> hpu_foreign_names() {
  constexpr const char* lists =
      "lists of operators for mixed precision have no counterpart; precision = \"bf16-mixed\" follows the rules of "
      "autocast";
  std::vector<ForeignName> names;
  for (const char* name : {"opt_level", "bf16_file_path", "fp32_file_path"})
    names.push_back({.name = name, .key = "precision.mode", .refusal = lists, .sections = {"strategy"}});
  return names;
}

}  // namespace

Entry hpu_entry() {
  auto entry = simulated_entry("hpu", "Gaudi devices (HPU).", "for Gaudi devices, and needs Intel's Gaudi software",
                               "ddp trains replicas");
  for (const char* name : {"hpu_parallel", "HPUParallelStrategy", "hpu_ddp"}) entry.aliases.push_back({name});
  for (const char* name : {"hpu_single", "SingleHPUStrategy"})
    entry.aliases.push_back({name, nlohmann::json::object(), "it has one device, so set devices.devices = 1"});
  entry.options = strategy_options(options_without_effect());
  entry.options.push_back({bucket_cap_option()});
  entry.foreign_names = hpu_foreign_names();
  return entry;
}

}  // namespace runner
