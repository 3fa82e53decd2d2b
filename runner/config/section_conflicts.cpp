// Finds contradictions in an elastic run's numbers of nodes, and of [plugins] and data.streaming with other keys.
#include "runner/config/section_conflicts.hpp"

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

std::vector<StreamingConflict> streaming_conflicts(const Recipe& recipe) {
  const auto& data = recipe.data;
  std::vector<StreamingConflict> conflicts;
  const auto unless = [&](bool fits, const char* key, const char* message) {
    if (!fits) conflicts.push_back({key, message});
  };
  if (!data.streaming) return conflicts;
  unless(data.format != "text" || data.tokenizer != "bytes", "data.tokenizer",
         "streaming tokenises during the training, and the bytes of a text need no tokenising: remove data.streaming");
  unless(!data.validation_fraction, "data.validation_fraction",
         "with streaming, the end of the data is not known when the training begins: name files in data.validation");
  unless(!recipe.train.max_epochs, "train.max_epochs",
         "with streaming, the steps of an epoch are not known when the training begins: use train.max_steps");
  unless(data.sources.empty(), "data.sources",
         "with streaming, the sizes of the sources are not known: use data.train");
  unless(!data.group_by_length, "data.group_by_length", "with streaming, the lengths of later samples are not known");
  unless(!data.order, "data.order", "with streaming, the number of samples is not known when the training begins");
  unless(!data.is_table() && !data.labels_texts(), "data.target",
         "streaming is for language models: labels and columns are read before the training begins");
  unless(!data.gives_samples(), "data.plugin", "streaming is for records, and this plug-in gives samples");
  return conflicts;
}

}  // namespace runner
