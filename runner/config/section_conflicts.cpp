// Finds contradictions in an elastic run's numbers of nodes, and of [plugins] and data.streaming with other keys, and settings without
// effect.
#include <fmt/format.h>

#include <algorithm>

#include "runner/config/contradictions.hpp"

namespace runner {

bool in_doubt(const Recipe& recipe, const std::string& key, const std::vector<Diagnostic>& mistakes) {
  const std::string section = key.substr(0, key.find('.')), place = place_of(recipe.origin(key));
  return std::ranges::any_of(mistakes, [&](const Diagnostic& mistake) {
    if (mistake.section != section) return false;
    if (mistake.code != "unknown-key") return place_of(mistake.place) == place;
    return !mistake.suggestion || *mistake.suggestion == section || key.ends_with(*mistake.suggestion);
  });
}

std::vector<KeyConflict> node_conflicts(const Recipe& recipe) {
  const auto& devices = recipe.devices;
  std::vector<KeyConflict> conflicts;
  if (!devices.elastic()) return conflicts;
  const auto disorder = [&](const std::string& low_key, int64_t low, const std::string& high_key, int64_t high) {
    conflicts.push_back({"devices." + high_key,
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
  const std::string key = devices.min_nodes ? "devices.min_nodes" : "devices.max_nodes";
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

/// plugins.cluster_environment says which ranks there are.
std::vector<KeyConflict> plugin_conflicts(const Recipe& recipe) {
  const auto& devices = recipe.devices;
  std::vector<KeyConflict> conflicts;
  const auto add = [&](const std::string& other, const std::string& message) {
    conflicts.push_back({"plugins.cluster_environment", message + ": remove one of the two", "devices." + other});
  };
  if (!recipe.plugins.cluster_environment) return conflicts;
  if (devices.cluster != "auto")
    add("cluster",
        fmt::format("the plug-in says where the ranks of the job run, and so does cluster = \"{}\"", devices.cluster));
  if (devices.simulate)
    add("simulate", "the plug-in says where the ranks of the job run, and simulate starts all of them here");
  if (devices.elastic())
    add(devices.min_nodes ? "min_nodes" : "max_nodes",
        "the plug-in says how many nodes the job has, and in an elastic run nodes leave and join");
  return conflicts;
}

std::vector<KeyConflict> streaming_conflicts(const Recipe& recipe) {
  const auto& data = recipe.data;
  std::vector<KeyConflict> conflicts;
  const auto unless = [&](bool fits, const char* key, const char* message) {
    if (!fits) conflicts.push_back({key, message, "data.streaming"});
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

namespace {

/// Why data.group_by_length has no effect; empty: it has.
std::string ungrouped(const Recipe::Data& data) {
  if (!data.sources.empty()) return "the shares of data.sources decide the order";
  if (data.masks_tokens()) return "masked_lm does not group its samples";
  if (data.packing == "wrapped") return "wrapped samples have equal lengths";
  return data.shuffle ? "" : "data.shuffle = false keeps the order of the files";
}

/// Notes about settings of loggers that are not used, and about secrets in the recipe.
void note_logging(const Recipe& recipe, std::vector<std::string>& notes) {
  const auto& logging = recipe.logging;
  for (const auto& [logger, keys] : {std::pair("mlflow", std::vector{"mlflow_uri", "mlflow_experiment"}),
                                     std::pair("wandb", std::vector{"wandb_project", "wandb_entity"})})
    for (const char* key : keys)
      if (recipe.origins.contains(std::string("logging.") + key) &&
          std::ranges::find(logging.loggers, logger) == logging.loggers.end())
        notes.push_back(fmt::format("logging.{} has no effect: `loggers` has no \"{}\"", key, logger));
  for (const auto& target : logging.notify)
    if (target.webhook && target.webhook->find("${env:") == std::string::npos)
      notes.push_back(
          "logging.notify has the URL of a webhook, which whoever reads the recipe can use: put it into a variable, "
          "and write webhook = \"${env:NAME}\"");
}

}  // namespace

std::vector<std::string> idle_switches(const Recipe& recipe) {
  std::vector<std::string> notes;
  if (const auto why = ungrouped(recipe.data); recipe.data.group_by_length && !why.empty())
    notes.push_back("data.group_by_length has no effect: " + why);
  if (recipe.data.num_workers == 0 && recipe.origins.contains("data.prefetch"))
    notes.push_back("data.prefetch has no effect: with num_workers = 0, the training thread reads each batch itself");
  if (recipe.data.is_images() && !recipe.data.mixes_images())
    for (const char* key : {"mixup_prob", "mixup_switch_prob", "mixup_mode", "mixup_off_epoch"})
      if (recipe.origins.contains(std::string("data.") + key))
        notes.push_back(fmt::format("data.{} has no effect: data.mixup and data.cutmix are 0", key));
  const auto& optimizer = recipe.optimizer;
  const bool decays =
      optimizer.weight_decay > 0 || std::any_of(optimizer.groups.begin(), optimizer.groups.end(),
                                                [](const auto& group) { return group.weight_decay.value_or(0) > 0; });
  if (optimizer.decay_norms_and_biases && !decays)
    notes.push_back("optimizer.decay_norms_and_biases has no effect: weight_decay is 0");
  if (recipe.fine_tune.method != "full" && !recipe.model.init_from)
    notes.push_back(fmt::format(
        "fine_tune.method = \"{}\" without model.init_from: the frozen parameters keep the random "
        "values that they begin with{}",
        recipe.fine_tune.method, recipe.fine_tune.quantizes() ? "" : ", and each checkpoint contains them"));
  const auto& schedule = recipe.lr_scheduler.name;
  if (optimizer.name == "schedule_free_adamw" && schedule != "constant")
    notes.push_back(
        fmt::format("lr_scheduler.name = \"{}\": schedule_free_adamw replaces a schedule, and its authors use a "
                    "constant rate after warm-up",
                    schedule));
  const bool lua_store = recipe.plugins.checkpoint_io && recipe.plugins.checkpoint_io->ends_with(".lua");
  if (recipe.hooks.trusted && recipe.hooks.files.empty() && !lua_store)
    notes.push_back("hooks.trusted has no effect: there are no hooks (hooks.files)");
  note_logging(recipe, notes);
  return notes;
}

}  // namespace runner
