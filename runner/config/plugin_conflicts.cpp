#include "runner/config/plugin_conflicts.hpp"

#include <fmt/format.h>

namespace runner {

namespace {

/// plugins.cluster_environment says which ranks there are.
void conflicts_of_cluster(const Recipe::Devices& devices, std::vector<PluginConflict>& conflicts) {
  const auto add = [&](const std::string& other, const std::string& message) {
    conflicts.push_back({"plugins.cluster_environment", message + ": remove one of the two", "devices." + other});
  };
  if (devices.cluster != "auto")
    add("cluster",
        fmt::format("the plug-in says where the ranks of the job run, and so does cluster = \"{}\"", devices.cluster));
  if (devices.simulate)
    add("simulate", "the plug-in says where the ranks of the job run, and simulate starts all of them here");
  if (devices.elastic())
    add(devices.min_nodes ? "min_nodes" : "max_nodes",
        "the plug-in says how many nodes the job has, and in an elastic run nodes leave and join");
}

}  // namespace

std::vector<PluginConflict> plugin_conflicts(const Recipe& recipe) {
  std::vector<PluginConflict> conflicts;
  if (recipe.plugins.cluster_environment) conflicts_of_cluster(recipe.devices, conflicts);
  return conflicts;
}

}  // namespace runner
