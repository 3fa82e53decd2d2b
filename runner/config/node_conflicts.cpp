// Checks the order of min_nodes, num_nodes and max_nodes, and what runs without nodes that come and go.
#include "runner/config/node_conflicts.hpp"

#include <fmt/format.h>

namespace runner {

std::vector<NodeConflict> node_conflicts(const Recipe& recipe) {
  const auto& devices = recipe.devices;
  std::vector<NodeConflict> conflicts;
  if (!devices.elastic()) return conflicts;
  const auto disorder = [&](const std::string& low_key, int64_t low, const std::string& high_key, int64_t high) {
    conflicts.push_back({high_key,
                         fmt::format("{} = {} is less than {} = {}: an elastic run has min_nodes to max_nodes nodes, "
                                     "and starts with num_nodes",
                                     high_key, high, low_key, low),
                         "devices." + low_key});
  };
  if (devices.min_nodes && devices.max_nodes && *devices.min_nodes > *devices.max_nodes)
    disorder("min_nodes", *devices.min_nodes, "max_nodes", *devices.max_nodes);
  else if (devices.min_nodes && *devices.min_nodes > devices.num_nodes)
    disorder("min_nodes", *devices.min_nodes, "num_nodes", devices.num_nodes);
  else if (devices.max_nodes && devices.num_nodes > *devices.max_nodes)
    disorder("num_nodes", devices.num_nodes, "max_nodes", *devices.max_nodes);
  const std::string key = devices.min_nodes ? "min_nodes" : "max_nodes";
  if (devices.simulate)
    conflicts.push_back({key,
                         "devices.simulate starts all ranks with one command, so no node can leave or join: remove one "
                         "of the two",
                         "devices.simulate"});
  if (recipe.run.fast_dev_run > 0)
    conflicts.push_back({key,
                         "run.fast_dev_run tries a few steps and keeps no checkpoint from which an elastic run could "
                         "go on: remove one of the two",
                         "run.fast_dev_run"});
  return conflicts;
}

}  // namespace runner
