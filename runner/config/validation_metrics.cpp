#include "runner/config/validation_metrics.hpp"

#include <algorithm>

#include "runner/config/model_families.hpp"

namespace runner {

const std::vector<std::string>& all_validation_metrics() {
  static const std::vector<std::string> names = {"val_accuracy", "val_top5_accuracy", "val_f1",
                                                 "val_auc",      "val_mae",           "val_r2"};
  return names;
}

std::vector<std::string> validation_metrics(const Recipe& recipe) {
  if (predicts_tokens(recipe)) return {};
  if (!recipe.train.loss) return all_validation_metrics();
  const auto& loss = *recipe.train.loss;
  const auto outputs = recipe.model.num_labels;
  if (loss != "cross_entropy" && loss != "bce") return {"val_mae", "val_r2"};
  std::vector<std::string> names = {"val_accuracy", "val_f1"};
  if (loss == "cross_entropy" && outputs.value_or(6) > 5) names.insert(names.begin() + 1, "val_top5_accuracy");
  if (!outputs || *outputs == (loss == "bce" ? 1 : 2)) names.emplace_back("val_auc");
  return names;
}

bool higher_is_better(const std::string& metric) {
  const auto& names = all_validation_metrics();
  return metric != "val_mae" && std::ranges::find(names, metric) != names.end();
}

}  // namespace runner
