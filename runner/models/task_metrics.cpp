#include "runner/models/task_metrics.hpp"

#include <cmath>

#include "runner/base/error.hpp"

namespace runner {

namespace {

double f1_of(double hits, double predictions, double positives) {
  return predictions + positives > 0 ? 2 * hits / (predictions + positives) : 0;
}

/// The share of pairs of a positive and a negative row in which the positive one has the larger score; ties count half.
double auc_of(std::span<const double> positive, std::span<const double> negative) {
  double below = 0, pairs = 0, positives = 0;
  for (size_t bin = 0; bin < positive.size(); ++bin) {
    pairs += positive[bin] * (below + negative[bin] / 2);
    below += negative[bin];
    positives += positive[bin];
  }
  return positives > 0 && below > 0 ? pairs / (positives * below) : std::nan("");
}

/// `spread`: the sum of the squared deviations from the mean. If all targets are equal, only exact outputs explain them (as in
/// scikit-learn's r2_score).
double r2_of(double squared_error, double spread, double squares) {
  constexpr double rounding = 1e-12;
  if (spread > rounding * squares) return 1 - squared_error / spread;
  return squared_error == 0 ? 1 : 0;
}

using Metrics = std::vector<std::pair<std::string, double>>;

void add_auc(Metrics& metrics, std::span<const double> bins) {
  const auto half = static_cast<size_t>(auc_bins);
  metrics.emplace_back("val_auc", auc_of(bins.first(half), bins.subspan(half, half)));
}

Metrics of_classes(const TaskSpec& task, std::span<const double> sums) {
  const auto k = static_cast<size_t>(task.outputs);
  const double rows = sums[1];
  Metrics metrics = {{"val_accuracy", sums[2] / rows}};
  if (task.outputs > 5) metrics.emplace_back("val_top5_accuracy", sums[3] / rows);
  double f1 = 0, occurring = 0;
  for (size_t c = 0; c < k; ++c) {
    const double hits = sums[4 + c], predictions = sums[4 + k + c], positives = sums[4 + 2 * k + c];
    if (predictions + positives == 0) continue;
    f1 += f1_of(hits, predictions, positives);
    ++occurring;
  }
  metrics.emplace_back("val_f1", f1 / occurring);
  if (measures_auc(task)) add_auc(metrics, sums.subspan(4 + 3 * k));
  return metrics;
}

Metrics of_labels(const TaskSpec& task, std::span<const double> sums) {
  const auto k = static_cast<size_t>(task.outputs);
  double f1 = 0, correct = 0;
  for (size_t c = 0; c < k; ++c) {
    f1 += f1_of(sums[2 + c], sums[2 + k + c], sums[2 + 2 * k + c]);
    correct += sums[2 + 3 * k + c];
  }
  const auto labels = static_cast<double>(k);
  Metrics metrics = {{"val_accuracy", correct / (sums[1] * labels)}, {"val_f1", f1 / labels}};
  if (measures_auc(task)) add_auc(metrics, sums.subspan(2 + 4 * k));
  return metrics;
}

Metrics of_numbers(const TaskSpec& task, std::span<const double> sums, const std::vector<double>& scales) {
  const auto k = static_cast<size_t>(task.outputs);
  const double rows = sums[1];
  double mae = 0, r2 = 0;
  for (size_t c = 0; c < k; ++c) {
    const double scale = scales.empty() ? 1 : scales[c];
    const double absolute = sums[2 + c], squared = sums[2 + k + c], sum = sums[2 + 2 * k + c],
                 squares = sums[2 + 3 * k + c];
    mae += scale * absolute / rows;
    r2 += r2_of(squared, squares - sum * sum / rows, squares);
  }
  return {{"val_mae", mae / static_cast<double>(k)}, {"val_r2", r2 / static_cast<double>(k)}};
}

}  // namespace

bool measures_auc(const TaskSpec& task) { return task.outputs == (task.classifies() ? 2 : 1) && !task.regresses(); }

int64_t metric_sums(const TaskSpec& task) {
  const int64_t bins = measures_auc(task) ? 2 * auc_bins : 0;
  return task.classifies() ? 4 + 3 * task.outputs + bins : 2 + 4 * task.outputs + bins;
}

Metrics metrics_of(const TaskSpec& task, std::span<const double> sums, const std::vector<double>& scales) {
  RUNNER_CHECK(std::ssize(sums) == metric_sums(task));
  if (task.classifies()) return of_classes(task, sums);
  return task.regresses() ? of_numbers(task, sums, scales) : of_labels(task, sums);
}

}  // namespace runner
