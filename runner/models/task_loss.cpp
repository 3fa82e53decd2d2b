#include "runner/models/task_loss.hpp"

#include "runner/models/task_metrics.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

using torch::Tensor;

namespace {

/// The loss of each element, [B, outputs].
Tensor element_loss(const TaskSpec& task, const Tensor& outputs, const Tensor& target) {
  switch (task.loss) {
    case TaskSpec::Loss::bce:
      return at::binary_cross_entropy_with_logits(outputs, target, {}, {}, at::Reduction::None);
    case TaskSpec::Loss::l1:
      return at::l1_loss(outputs, target, at::Reduction::None);
    case TaskSpec::Loss::huber:
      return at::huber_loss(outputs, target, at::Reduction::None, task.huber_delta);
    default:
      return at::mse_loss(outputs, target, at::Reduction::None);
  }
}

/// Counts of positive and of negative rows by score; `valid` is 1 for rows that count.
Tensor score_bins(const Tensor& score, const Tensor& positive, const Tensor& valid) {
  const double width = 2 * auc_limit / static_cast<double>(auc_bins);
  const auto bin = ((score.clamp(-auc_limit, auc_limit) + auc_limit) / width).floor().clamp_max(auc_bins - 1);
  const auto index = bin.to(torch::kInt64) + at::where(positive, 0, auc_bins);
  return at::zeros({2 * auc_bins}, score.options()).index_add_(0, index, valid);
}

Tensor class_sums(const TaskSpec& task, const Tensor& logits, const Tensor& labels) {
  const auto valid = labels.ne(ignored_target);
  const auto counts = valid.to(logits.scalar_type());
  const auto safe = labels.clamp_min(0);
  const auto predicted = logits.argmax(1);
  const auto hit = predicted.eq(labels).to(logits.scalar_type());
  const auto top = std::get<1>(logits.topk(std::min<int64_t>(5, task.outputs), 1));
  const auto in_top = top.eq(labels.unsqueeze(1)).any(1).to(logits.scalar_type());
  const auto per_class = [&](const Tensor& index, const Tensor& values) {
    return at::zeros({task.outputs}, logits.options()).index_add_(0, index, values);
  };
  const auto loss = at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum, ignored_target);
  std::vector<Tensor> parts = {at::stack({loss, counts.sum(), hit.sum(), in_top.sum()}), per_class(safe, hit),
                               per_class(predicted, counts), per_class(safe, counts)};
  if (measures_auc(task)) parts.push_back(score_bins(logits.select(1, 1) - logits.select(1, 0), labels.eq(1), counts));
  return at::cat(parts);
}

Tensor label_sums(const TaskSpec& task, const Tensor& logits, const Tensor& target, const Tensor& valid,
                  const Tensor& loss) {
  const auto dtype = logits.scalar_type();
  const auto positive = target.gt(0.5), predicted = logits.gt(0);
  const auto rows = valid.select(1, 0).sum().reshape({1});
  std::vector<Tensor> parts = {loss.reshape({1}),
                               rows,
                               (positive.logical_and(predicted).to(dtype) * valid).sum(0),
                               (predicted.to(dtype) * valid).sum(0),
                               (positive.to(dtype) * valid).sum(0),
                               (positive.eq(predicted).to(dtype) * valid).sum(0)};
  if (measures_auc(task)) parts.push_back(score_bins(logits.select(1, 0), positive.select(1, 0), valid.select(1, 0)));
  return at::cat(parts);
}

}  // namespace

Tensor task_loss(const TaskSpec& task, const Tensor& logits, const Tensor& target) {
  if (task.classifies())
    return at::cross_entropy_loss(logits, target, {}, at::Reduction::Sum, ignored_target, task.label_smoothing);
  const auto valid = target.isnan().logical_not();
  const auto wanted = target.to(logits.scalar_type()).nan_to_num(0);
  return (element_loss(task, logits, wanted) * valid).sum() / static_cast<double>(task.outputs);
}

Tensor soft_targets(const TaskSpec& task, const Tensor& labels, const Tensor& partner_labels, const Tensor& share) {
  const auto classes = at::arange(task.outputs, labels.options());
  const auto first = share.unsqueeze(1);
  auto targets = at::where(labels.unsqueeze(1).eq(classes), first, 0);
  targets.add_(at::where(partner_labels.unsqueeze(1).eq(classes), 1 - first, 0));
  const double smoothing = task.label_smoothing;
  if (smoothing > 0) targets.mul_(1 - smoothing).add_(smoothing / static_cast<double>(task.outputs));
  return targets.mul_(labels.ne(ignored_target).unsqueeze(1));
}

Tensor soft_target_loss(const Tensor& logits, const Tensor& targets) {
  return -(at::log_softmax(logits, 1) * targets).sum();
}

Tensor task_sums(const TaskSpec& task, const Tensor& logits, const Tensor& target) {
  if (task.classifies()) return class_sums(task, logits, target);
  const auto valid = target.isnan().logical_not().to(logits.scalar_type());
  const auto wanted = target.to(logits.scalar_type()).nan_to_num(0);
  const auto loss = task_loss(task, logits, target);
  if (!task.regresses()) return label_sums(task, logits, wanted, valid, loss);
  // A variance is a small difference of large sums, so they need fp64.
  const auto error = ((logits - wanted) * valid).to(torch::kFloat64), exact = wanted.to(torch::kFloat64);
  return at::cat({loss.reshape({1}), valid.select(1, 0).sum().reshape({1}), error.abs().sum(0), error.square().sum(0),
                  exact.sum(0), exact.square().sum(0)});
}

}  // namespace runner
