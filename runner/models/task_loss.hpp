// Losses over labels and numbers of rows, and the sums that validation measures.
#pragma once
#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/task_spec.hpp"

namespace runner {

/// The summed loss of rows, a scalar. logits [B, outputs] in fp32 or fp64; target int64 [B] of classes, where
/// ignored_target does not count, or fp32 [B, outputs], where NaN does not.
torch::Tensor task_loss(const TaskSpec& task, const torch::Tensor& logits, const torch::Tensor& target);

/// The share of each class of rows that are mixed from two, [B, outputs] in fp32: `share` [B] of the class in `labels` and the rest of
/// that in `partner_labels`, each smoothed by task.label_smoothing: s / outputs for every class, and 1 - s more for that of the row
/// (timm/data/mixup.py, mixup_target()). All are 0 in a row that does not count.
torch::Tensor soft_targets(const TaskSpec& task, const torch::Tensor& labels, const torch::Tensor& partner_labels,
                           const torch::Tensor& share);

/// The summed cross entropy of logits [B, outputs] with soft_targets(), a scalar.
torch::Tensor soft_target_loss(const torch::Tensor& logits, const torch::Tensor& targets);

/// The sums of task_metrics.hpp, [metric_sums(task)]; of numbers in fp64. The loss is that without label smoothing.
torch::Tensor task_sums(const TaskSpec& task, const torch::Tensor& logits, const torch::Tensor& target);

}  // namespace runner
