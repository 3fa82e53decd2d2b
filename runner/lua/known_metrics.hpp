// The metrics that a training records: those of the trainer, and those of hooks as far as a dry run shows them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner::lua {

/// The metrics that the trainer itself records.
const std::vector<std::string>& trainer_metrics();

/// Throws ScriptMistake if a hook must not log under this name: it is empty, not UTF-8, in trainer_metrics(), or the name of a column of
/// tables of metrics that is no metric: step, run, name, run_id, run_name.
void check_metric_name(std::string_view name);

/// The note about a metric whose logged value is not finite, often because of a division by zero.
std::string nonfinite_note(const std::string& hook, const std::string& name, double value, int64_t step);

/// Whether the trainer records the metric in a training of this recipe. It records val_loss only with validation data.
bool trainer_records(const Recipe& recipe, std::string_view name);

struct KnownMetrics {
  std::vector<std::string> names;  ///< known recorded metrics
  std::vector<std::string> texts;  ///< of the hooks and their options; they may contain more names
  bool complete = true;            ///< false: hooks failed, were not run, or compute names, so any name is possible
  std::string mistake = {};        ///< the error of a hook that fails in every training; empty: none is known

  enum class Recorded { yes, maybe, no };
  /// Whether a training of the recipe records the metric. `yes`: a hook logged the name in a dry run, or one
  /// with the same prefix up to one of / . _ -, or the text of a hook contains it. `no`: the name is certainly not
  /// recorded.
  Recorded recorded(const std::string& name) const;
};

/// Runs the recipe's hooks in a DryRun, which takes milliseconds. Does not run hooks that may write files
/// (hooks.trusted). Of their mistakes, reports only those that do not depend on the training.
KnownMetrics known_metrics(const Recipe& recipe);

/// Whether the text of a hook may log under names that it does not contain: a name of log() is not a plain string,
/// log() is used as a value, or other files are loaded.
bool computes_names(std::string_view text);

}  // namespace runner::lua
