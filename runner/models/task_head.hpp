// The last block of models that predict labels or numbers: a linear layer over the features of a row, and the loss.
#pragma once
#include "runner/base/error.hpp"
#include "runner/models/layers.hpp"
#include "runner/models/task_loss.hpp"
#include "strategies/engine/row_batch.hpp"

namespace runner {

/// features(x) [B, dim] -> the summed loss of the rows; without `training` the sums of task_metrics.hpp; with `logits_of` the outputs [B,
/// outputs].
class TaskHead : public Block {
 public:
  explicit TaskHead(const Model& model)
      : task_(*model.spec.task),
        linear_(model, "head"),
        target_(model.spec.batch_field(task_.classifies() ? row_field::labels_name : row_field::targets_name)) {
    if (!task_.mixes_labels) return;
    partner_ = model.spec.batch_field(row_field::partner_labels_name);
    share_ = model.spec.batch_field(row_field::label_share_name);
  }

  torch::Tensor forward(const torch::Tensor& x, const ForwardContext& context) override {
    ComputeScope compute(x);
    auto outputs = linear_(features(x.to(compute.dtype), context), context);
    if (outputs.scalar_type() != torch::kFloat64) outputs = outputs.to(torch::kFloat32);
    if (context.logits_of) return outputs;
    const auto& target = context.batch->fields[target_];
    if (!context.training) return task_sums(task_, outputs, target);
    if (context.token_loss) return own_loss(outputs, context);
    if (!task_.mixes_labels) return task_loss(task_, outputs, target);
    const auto& fields = context.batch->fields;
    return soft_target_loss(outputs, soft_targets(task_, target, fields[partner_], fields[share_]));
  }

 protected:
  /// The output of the block before as [B, dim].
  virtual torch::Tensor features(const torch::Tensor& x, const ForwardContext& /*context*/) { return x; }

 private:
  /// The loss of a hook. Of a row with two classes it is the mean of both, weighted by their shares.
  torch::Tensor own_loss(const torch::Tensor& outputs, const ForwardContext& context) const {
    if (!task_.classifies()) throw usage_error("the function `loss` of a hook replaces cross entropy only");
    const auto& fields = context.batch->fields;
    const auto& target = fields[target_];
    const auto counted = target.ne(ignored_target).nonzero().squeeze(1);
    const auto of = [&](size_t field) { return fields[field].index_select(0, counted); };
    const auto logits = outputs.index_select(0, counted);
    const auto& loss = *context.token_loss;
    if (!task_.mixes_labels) return loss(logits, of(target_)).sum();
    const auto share = of(share_);
    return (share * loss(logits, of(target_)) + (1 - share) * loss(logits, of(partner_))).sum();
  }

  TaskSpec task_;
  Linear linear_;
  size_t target_;
  size_t partner_ = 0, share_ = 0;  ///< fields of rows with two classes
};

}  // namespace runner
