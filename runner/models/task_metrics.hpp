// Metrics of validation from sums over rows, which ranks and batches add up. Torch-free.
//
// The sums of a batch, in order:
//   classes:  loss, rows, correct, correct among the 5 largest; for each class: hits, predictions, rows; with two classes bins
//   labels:   loss, rows; for each label: hits, predictions, positive rows, correct; with one label bins
//   numbers:  loss, rows; for each number: |error|, error^2, target, target^2
// bins: auc_bins counts of positive rows by score, and as many of negative rows.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "strategies/contract/task_spec.hpp"

namespace runner {

/// Scores between -auc_limit and auc_limit (log-odds) are counted in bins of equal width.
inline constexpr int64_t auc_bins = 1024;
inline constexpr double auc_limit = 16;

bool measures_auc(const TaskSpec& task);
int64_t metric_sums(const TaskSpec& task);

/// Names as in config/model_families.hpp, in that order. `scales`: the factor by which each number was divided when it was
/// standardized; empty: 1.
///   val_f1: of classes the mean over those that occur; of labels the mean over the labels.
///   val_auc: the area under the ROC curve from the bins; rows of a bin count as ties.
///   val_mae: the mean over the numbers, in their own units. val_r2: the mean over the numbers of 1 - squared error / variance.
///   If all targets are equal, it is 1 for exact outputs, and otherwise 0.
std::vector<std::pair<std::string, double>> metrics_of(const TaskSpec& task, std::span<const double> sums,
                                                       const std::vector<double>& scales = {});

}  // namespace runner
