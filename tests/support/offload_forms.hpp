// The combinations of ZeRO stage and offload, and a plan for a device with separate memory that runs on CPU threads.
#pragma once
#include <string>
#include <vector>

#include "strategies/executor/executor.hpp"
#include "strategies/zero/entry.hpp"
#include "tests/support/tiny_training.hpp"

namespace runner::testing {

/// The device of the optimizer state and of the parameters: "" (not offloaded), "cpu" or "nvme".
struct OffloadForm {
  int stage;
  std::string optimizer, parameters;
};

inline std::vector<OffloadForm> offload_forms() {
  std::vector<OffloadForm> all;
  for (int stage : {1, 2, 3})
    for (std::string optimizer : {"", "cpu", "nvme"})
      for (std::string parameters : {"", "cpu", "nvme"})
        if (stage == 3 || parameters.empty()) all.push_back({stage, optimizer, parameters});
  return all;
}

inline nlohmann::json options_of(const OffloadForm& form, const std::string& folder) {
  nlohmann::json options{{"stage", form.stage},
                         {"stage3_param_persistence_threshold", 500},
                         {"stage3_max_reuse_distance", 0},
                         {"nvme_path", folder},
                         {"max_in_cpu", 0},
                         {"sub_group_size", 2048}};
  if (!form.optimizer.empty())
    options.update({{"offload_optimizer", true}, {"offload_optimizer_device", form.optimizer}});
  if (!form.parameters.empty())
    options.update({{"offload_parameters", true}, {"offload_params_device", form.parameters}});
  return options;
}

/// The plan of zero for a device with separate memory. "cpu" is then host memory, as for a CUDA device.
inline ParallelPlan plan_apart(const Job& job) {
  ParallelPlan plan = zero_plan(job);
  const auto& options = job.options;
  auto in_host_memory = [&](const char* option, const char* device) {
    return options.value(option, false) && options.value(device, "") == "cpu";
  };
  plan.separate_host = true;
  if (in_host_memory("offload_optimizer", "offload_optimizer_device")) plan.optimizer = Tier::host;
  for (auto& unit : plan.units)
    if (!unit.resident && in_host_memory("offload_parameters", "offload_params_device")) unit.tier = Tier::host;
  return plan;
}

inline std::unique_ptr<Strategy> make_apart(StrategySetup setup, ShardEvents events = {}) {
  ParallelPlan plan = plan_apart(setup.job);
  return make_executor(std::move(setup), std::move(plan), std::move(events));
}

}  // namespace runner::testing
