// Losses over labels and numbers of rows, and the sums that validation measures.
#pragma once
#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/task_spec.hpp"

namespace runner {

/// The summed loss of rows, a scalar. logits [B, outputs] in fp32 or fp64; target int64 [B] of classes, where
/// ignored_target does not count, or fp32 [B, outputs], where NaN does not.
torch::Tensor task_loss(const TaskSpec& task, const torch::Tensor& logits, const torch::Tensor& target);

/// The sums of task_metrics.hpp, [metric_sums(task)]; of numbers in fp64. The loss is that without label smoothing.
torch::Tensor task_sums(const TaskSpec& task, const torch::Tensor& logits, const torch::Tensor& target);

}  // namespace runner
