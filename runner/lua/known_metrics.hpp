// The metrics that a training records: those of the trainer, and those of hooks as far as a fake training shows them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner::lua {

/// The metrics that the trainer itself records.
const std::vector<std::string>& trainer_metrics();

/// Throws ScriptMistake if a hook must not log under this name: it is empty or in trainer_metrics().
void check_metric_name(std::string_view name);

/// The note about a metric whose logged value is not finite, often because of a division by zero.
std::string nonfinite_note(const std::string& hook, const std::string& name, double value, int64_t step);

/// Whether the trainer records the metric in a training of this recipe. It records val_loss only with validation data.
bool trainer_records(const Recipe& recipe, std::string_view name);

struct KnownMetrics {
  std::vector<std::string> names;  ///< known recorded metrics
  std::vector<std::string> texts;  ///< of the hooks and their options; they may contain more names
  bool complete = true;            ///< false: hooks failed or were not run, so any name is possible

  /// False if no training of the recipe can record the metric. Possible are names that a hook logged in the fake
  /// training, names with the same prefix up to one of / . _ -, and names in the text of a hook.
  bool may_have(const std::string& name) const;
};

/// Runs the recipe's hooks in a FakeTraining, which takes milliseconds. Does not run hooks that may write files
/// (hooks.trusted). Does not report their mistakes.
KnownMetrics known_metrics(const Recipe& recipe);

}  // namespace runner::lua
