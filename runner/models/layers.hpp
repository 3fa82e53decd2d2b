// The layers that blocks are made of, each as few ATen calls as autograd allows.
//
// Precision is explicit here: a block opens a ComputeScope, casts its parameters to the scope's dtype and switches
// autocast's own rewriting off, so that it computes the same way under autocast, with parameters already cast by a
// strategy, and in full precision. The residual stream is in the compute dtype; statistics of norms and the loss are
// fp32 (fp64 for fp64 models).
#pragma once
#include <string>

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/module.hpp"

namespace runner {

/// What a block computes in: autocast's dtype where it is enabled for the device of `reference`, else reference's own.
class ComputeScope {
 public:
  explicit ComputeScope(const torch::Tensor& reference);
  const torch::ScalarType dtype;

 private:
  c10::impl::ExcludeDispatchKeyGuard no_autocast_{c10::autocast_dispatch_keyset};
};

/// A block's hold on one parameter. The slot is read at every use, because strategies exchange what is in it.
class Parameter {
 public:
  /// Throws std::logic_error when the spec does not list `name`.
  Parameter(const Model& model, const std::string& name);
  /// A parameter that the spec may leave out (a bias): reads as an undefined tensor then.
  static Parameter optional(const Model& model, const std::string& name);

  torch::Tensor get() const { return slots_ ? (*slots_)[index_] : torch::Tensor(); }
  torch::Tensor as(torch::ScalarType dtype) const;

 private:
  Parameter() = default;
  const std::vector<torch::Tensor>* slots_ = nullptr;
  size_t index_ = 0;
};

/// x W^T + b over rows [N, in]; the bias is there when the spec lists one.
class Linear {
 public:
  Linear(const Model& model, const std::string& name);
  torch::Tensor operator()(const torch::Tensor& x) const;

 private:
  Parameter weight_, bias_;
};

class LayerNorm {
 public:
  LayerNorm(const Model& model, const std::string& name, double eps);
  torch::Tensor operator()(const torch::Tensor& x) const;

 private:
  Parameter weight_, bias_;
  double eps_;
};

/// x / sqrt(mean(x^2) + eps) * weight over the last dim (Zhang and Sennrich 2019). Keeps x and one statistic a row.
class RmsNorm {
 public:
  RmsNorm(const Model& model, const std::string& name, double eps);
  torch::Tensor operator()(const torch::Tensor& x) const;

 private:
  Parameter weight_;
  double eps_;
};
torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double eps);

/// silu(gate) * up (Shazeer 2020). Keeps gate and up only; silu(gate) is computed again in backward.
torch::Tensor swiglu(const torch::Tensor& gate, const torch::Tensor& up);

}  // namespace runner
