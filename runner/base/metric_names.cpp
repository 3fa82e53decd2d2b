#include "runner/base/metric_names.hpp"

#include <algorithm>

namespace runner {

const std::vector<MetricInfo>& metric_table() {
  using enum MetricInfo::Better;
  using enum MetricInfo::Of;
  static const std::vector<MetricInfo> table = {
      {metric::loss, "", lower, step, "Mean training loss over the tokens or samples of the step."},
      {metric::val_loss, "", lower, validation, "Mean loss over the validation data."},
      {metric::lr, "", neither, step, "Learning rate of the step."},
      {metric::grad_norm, "", neither, step, "2-norm of all gradients, before clipping."},
      {metric::tokens_per_s, "tokens/s", higher, step, "Tokens of the step divided by its time, over all ranks."},
      {metric::samples_per_s, "samples/s", higher, step, "Samples of the step divided by its time, over all ranks."},
      {metric::step_seconds, "s", lower, step, "Time of the step."},
      {metric::data_wait_share, "", lower, step, "Share of the step's time in which rank 0 waited for data, 0 to 1."},
      {metric::epoch, "", neither, step, "Epoch of the step, from 0."},
      {metric::tokens, "tokens", neither, step, "Tokens trained on so far, over all ranks and attempts."},
      {metric::samples, "samples", neither, step, "Samples trained on so far, over all ranks and attempts."},
      {metric::seconds, "s", neither, step,
       "Time of training so far, over all attempts and without the pauses between."},
      {metric::memory_bytes, "bytes", lower, step, "Largest number of tensor bytes so far on the device of rank 0."},
      {metric::val_accuracy, "", higher, task, "Share of validation samples with the right label, 0 to 1."},
      {metric::val_top5_accuracy, "", higher, task, "Share whose label is one of the five most probable, 0 to 1."},
      {metric::val_f1, "", higher, task, "F1 score, 0 to 1."},
      {metric::val_auc, "", higher, task, "Area under the ROC curve, 0 to 1."},
      {metric::val_mae, "", lower, task, "Mean absolute error, in the unit of the target."},
      {metric::val_r2, "", higher, task, "Coefficient of determination; 1 is perfect."},
  };
  return table;
}

const MetricInfo* find_metric(std::string_view name) {
  const auto found = std::ranges::find(metric_table(), name, &MetricInfo::name);
  return found != metric_table().end() ? &*found : nullptr;
}

void sort_metrics(std::vector<std::string>& names) {
  const auto place = [](const std::string& name) {
    return std::ranges::find(metric_table(), name, &MetricInfo::name) - metric_table().begin();
  };
  std::ranges::stable_sort(names, {}, place);
}

const char* rate_metric(std::string_view unit) {
  return unit == "samples" ? metric::samples_per_s : metric::tokens_per_s;
}

const char* total_metric(std::string_view unit) { return unit == "samples" ? metric::samples : metric::tokens; }

}  // namespace runner
