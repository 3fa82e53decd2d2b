// The metrics that a training records: those of the trainer, and those of hooks as far as their code shows them.
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
  bool complete = true;            ///< false: hooks compute names or load files, so any name is possible
  /// The mistake of a hook, with its place: a name that it must not log, or a text that it continues although the data are tokens.
  /// Empty: none is known.
  std::string mistake = {};

  enum class Recorded { yes, maybe, no };
  /// Whether a training of the recipe records the metric. `yes`: the code of a hook contains the name, or a name with the same beginning up
  /// to one of / . _ - (unless `complete`, any such string). `no`: the name is certainly not recorded.
  Recorded recorded(const std::string& name) const;
};

/// Reads the code of the recipe's hooks without running it.
KnownMetrics known_metrics(const Recipe& recipe);

}  // namespace runner::lua
