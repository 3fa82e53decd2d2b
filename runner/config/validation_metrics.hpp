// The metrics that validation measures in addition to val_loss, for models that predict labels or numbers.
#pragma once
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner {

/// The metrics of all tasks: val_accuracy, val_top5_accuracy, val_f1, val_auc, val_mae, val_r2.
const std::vector<std::string>& all_validation_metrics();
/// The metrics for train.loss and model.num_labels; none for language models. All that are possible while these are not known.
std::vector<std::string> validation_metrics(const Recipe& recipe);

}  // namespace runner
