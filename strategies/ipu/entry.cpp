#include "strategies/ipu/entry.hpp"

#include <fmt/format.h>

#include <bit>

#include "strategies/contract/gradient_buckets.hpp"

namespace runner {

namespace {

std::optional<std::string> refuse_ipu(const Job& job) {
  const auto replicas = static_cast<uint64_t>(job.data_ranks());
  if (std::has_single_bit(replicas)) return std::nullopt;
  return fmt::format("the replicas of a model on IPUs are a power of two, not {}: set devices.devices to {} or {}",
                     replicas, std::bit_floor(replicas), std::bit_ceil(replicas));
}

/// A profile of the run, if it is on.
std::optional<ForeignName::Values> profile(const nlohmann::json& on) {
  if (!on.is_boolean()) return std::nullopt;
  return on == true ? ForeignName::Values{{"run.profiler", "trace"}} : ForeignName::Values{};
}

std::vector<ForeignName> ipu_foreign_names() {
  constexpr const char* options =
      "options of PopTorch need its compiler; train.accumulate_grad_batches, precision and devices.mesh = { pipeline = "
      "2 } say the same here";
  std::vector<ForeignName> names = {
      {.name = "device_iterations",
       .key = "train.log_every_n_steps",
       .meaning = ForeignName::same_value_of("train.log_every_n_steps"),
       .note = "an IPU reports after so many steps; here it only sets how often steps are logged"},
      {.name = "autoreport", .key = "run.profiler", .meaning = profile, .refusal = "it is true or false"},
      ForeignName::accepted("autoreport_dir", "nothing to do: a profile is in the folder of the run"),
      ForeignName::refused("training_opts", options),
      ForeignName::refused("inference_opts", options)};
  for (auto& name : names) name.sections = {"strategy"};
  return names;
}

}  // namespace

Entry ipu_entry() {
  auto entry = simulated_entry("ipu", "Graphcore devices (IPU).", "for Graphcore devices, and needs Poplar",
                               "ddp trains replicas and pipeline divides the blocks");
  for (const char* name : {"ipu_strategy", "IPUStrategy"}) entry.aliases.push_back({name});
  entry.options = strategy_options({bucket_cap_option()});
  entry.foreign_names = ipu_foreign_names();
  entry.refuse = refuse_ipu;
  return entry;
}

}  // namespace runner
