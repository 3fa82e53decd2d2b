// The metrics that a training records by itself: name, unit and meaning of each, and the direction that is better of all metrics. Every
// other file takes the names from here.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace runner {

/// Names of metrics in the ledger, in recipes and in hooks.
namespace metric {
inline constexpr const char* loss = "loss";
inline constexpr const char* val_loss = "val_loss";
inline constexpr const char* lr = "lr";
inline constexpr const char* grad_norm = "grad_norm";
inline constexpr const char* tokens_per_s = "tokens_per_s";
inline constexpr const char* samples_per_s = "samples_per_s";
inline constexpr const char* step_seconds = "step_seconds";
inline constexpr const char* data_wait_share = "data_wait_share";
inline constexpr const char* memory_bytes = "memory_bytes";
inline constexpr const char* epoch = "epoch";
inline constexpr const char* tokens = "tokens";
inline constexpr const char* samples = "samples";
inline constexpr const char* seconds = "seconds";
inline constexpr const char* val_accuracy = "val_accuracy";
inline constexpr const char* val_top5_accuracy = "val_top5_accuracy";
inline constexpr const char* val_f1 = "val_f1";
inline constexpr const char* val_auc = "val_auc";
inline constexpr const char* val_mae = "val_mae";
inline constexpr const char* val_r2 = "val_r2";
/// The rate of one group of parameters is "lr/GROUP".
inline constexpr const char* group_lr_prefix = "lr/";
}  // namespace metric

struct MetricInfo {
  /// When it is recorded: at logged steps, by validation, or by validation of models of labels or numbers.
  enum class Of { step, validation, task };

  std::string_view name;
  std::string_view unit;  ///< "" for plain numbers
  Of of;
  std::string_view meaning;  ///< a sentence
};

/// In reading order: the most important first.
const std::vector<MetricInfo>& metric_table();
/// nullptr for other names, which hooks log.
const MetricInfo* find_metric(std::string_view name);
/// Whether a larger value of a metric is better: accuracies, F1, rewards, rates, ... Also of those that hooks log, by their name.
bool higher_is_better(std::string_view name);
/// The names for which it is, as patterns of SQL's LIKE with the escape character "!". The ledger takes them from here.
std::vector<std::string> higher_is_better_patterns();
/// Sorts names in reading order; those that are not in the table are last, in the order that they had.
void sort_metrics(std::vector<std::string>& names);

/// The rate of what a model is trained on: tokens, or samples of a model of labels or numbers (`unit`). The speed of a run is the mean
/// rate without its first step, which `measured` has under this name, and while there is none, the metric's last point.
const char* rate_metric(std::string_view unit);
/// How much it has been trained on so far.
const char* total_metric(std::string_view unit);

// Values of metrics as text for people. NaN has no sign there.

/// "2.5000", or "2.250e-06" where four decimals would not show the value.
std::string metric_text(double value);
/// All digits: "2.25e-06".
std::string exact_metric_text(double value);

}  // namespace runner
