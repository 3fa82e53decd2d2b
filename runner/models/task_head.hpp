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
        target_(model.spec.batch_field(task_.classifies() ? row_field::labels_name : row_field::targets_name)) {}

  torch::Tensor forward(const torch::Tensor& x, const ForwardContext& context) override {
    ComputeScope compute(x);
    auto outputs = linear_(features(x.to(compute.dtype), context), context);
    if (outputs.scalar_type() != torch::kFloat64) outputs = outputs.to(torch::kFloat32);
    if (context.logits_of) return outputs;
    const auto& target = context.batch->fields[target_];
    if (!context.training) return task_sums(task_, outputs, target);
    if (!context.token_loss) return task_loss(task_, outputs, target);
    if (!task_.classifies()) throw usage_error("the function `loss` of a hook replaces cross entropy only");
    const auto counted = target.ne(ignored_target).nonzero().squeeze(1);
    if (counted.numel() == 0) return outputs.sum() * 0;
    return (*context.token_loss)(outputs.index_select(0, counted), target.index_select(0, counted)).sum();
  }

 protected:
  /// The output of the block before as [B, dim].
  virtual torch::Tensor features(const torch::Tensor& x, const ForwardContext& /*context*/) { return x; }

 private:
  TaskSpec task_;
  Linear linear_;
  size_t target_;
};

}  // namespace runner
