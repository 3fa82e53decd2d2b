// BatchNorm (Ioffe and Szegedy 2015, arXiv:1502.03167) over the channels of images.
#pragma once
#include "runner/models/layers.hpp"

namespace runner {

/// x [B, C, H, W]. Training uses the mean and the variance of the rank's micro-batch, or with `sync` of all ranks' rows of this
/// micro-batch, and hands them to Model::statistics; validation uses the running statistics NAME.running_mean and
/// NAME.running_var. A micro-batch without samples is normed, too, and does not count.
class BatchNorm {
 public:
  BatchNorm(Model& model, const std::string& name, double eps, bool sync);
  torch::Tensor operator()(const torch::Tensor& x, const ForwardContext& context) const;

 private:
  Parameter weight_, bias_;
  Model& model_;
  size_t mean_, variance_;  ///< indices of ModelSpec::buffers
  double eps_;
  bool sync_;
};

}  // namespace runner
