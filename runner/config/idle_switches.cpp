#include "runner/config/idle_switches.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace runner {

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
    notes.push_back(
        fmt::format("fine_tune.method = \"{}\" without model.init_from: the frozen parameters keep the random "
                    "values that they begin with",
                    recipe.fine_tune.method));
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
