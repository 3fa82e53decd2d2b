#include "runner/config/validation_metrics.hpp"

#include "runner/base/metric_names.hpp"
#include "runner/config/model_families.hpp"

namespace runner {

const std::vector<std::string>& all_validation_metrics() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& metric : metric_table())
      if (metric.of == MetricInfo::Of::task) list.emplace_back(metric.name);
    return list;
  }();
  return names;
}

std::vector<std::string> validation_metrics(const Recipe& recipe) {
  if (predicts_tokens(recipe)) return {};
  if (!recipe.train.loss) return all_validation_metrics();
  const auto& loss = *recipe.train.loss;
  const auto outputs = recipe.model.num_labels;
  if (loss != "cross_entropy" && loss != "bce") return {metric::val_mae, metric::val_r2};
  std::vector<std::string> names = {metric::val_accuracy, metric::val_f1};
  if (loss == "cross_entropy" && outputs.value_or(6) > 5) names.insert(names.begin() + 1, metric::val_top5_accuracy);
  if (!outputs || *outputs == (loss == "bce" ? 1 : 2)) names.emplace_back(metric::val_auc);
  return names;
}

}  // namespace runner
