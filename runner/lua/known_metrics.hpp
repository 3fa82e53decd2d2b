// Which metrics a training records: the trainer's own, and those that hooks log, as far as that shows without training.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner::lua {

/// The metrics that the trainer itself records.
const std::vector<std::string>& trainer_metrics();

/// Throws ScriptMistake where a hook may not log under a name: an empty one, and those of trainer_metrics(), whose
/// values a hook's could not be told from.
void check_metric_name(std::string_view name);

/// Said once of each metric whose logged value is not finite, which often comes of a division by zero.
std::string nonfinite_note(const std::string& hook, const std::string& name, double value, int64_t step);

/// Whether the trainer itself records the metric in a training of this recipe: val_loss only where it validates.
bool trainer_records(const Recipe& recipe, std::string_view name);

struct KnownMetrics {
  std::vector<std::string> names;  ///< that are recorded, as far as is known
  std::vector<std::string> texts;  ///< of the hooks and their options, in which other names may stand
  bool complete = true;  ///< false: hooks failed in the fake training or are trusted with files: nothing is ruled out

  /// False where no training of the recipe records such a metric. A name is possible if a hook logged it, or one with
  /// the same beginning up to one of / . _ -, in the fake training, or if it stands in the text of a hook.
  bool may_have(const std::string& name) const;
};

/// Runs the hooks of the recipe against fake_training.hpp, in milliseconds, unless they may write files
/// (hooks.trusted). Their mistakes are not reported.
KnownMetrics known_metrics(const Recipe& recipe);

}  // namespace runner::lua
