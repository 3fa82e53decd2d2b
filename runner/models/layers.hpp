// The layers of blocks, each with as few ATen calls as autograd allows.
//
// Precision is explicit: a block opens a ComputeScope, casts its parameters to the scope's dtype and disables
// autocast's dispatch. So it computes the same values under autocast, with parameters that a strategy has cast, and in
// full precision. The residual stream has the compute dtype. Statistics of norms and the loss are fp32 (fp64 for fp64
// models).
#pragma once
#include <optional>
#include <string>

#include "runner/models/dropout.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/module.hpp"

namespace runner {

/// The compute dtype: autocast's if autocast is enabled for the device of `reference`, otherwise reference's dtype.
class ComputeScope {
 public:
  explicit ComputeScope(const torch::Tensor& reference);
  const torch::ScalarType dtype;

 private:
  c10::impl::ExcludeDispatchKeyGuard no_autocast_{c10::autocast_dispatch_keyset};
};

/// A block's access to one parameter. It reads the slot at every use, because strategies replace the tensor in it.
class Parameter {
 public:
  /// Throws std::logic_error if the spec has no parameter `name`.
  Parameter(const Model& model, const std::string& name);
  /// For a parameter that may be missing in the spec (a bias): get() is then an undefined tensor.
  static Parameter optional(const Model& model, const std::string& name);

  /// Whether the spec has the parameter.
  explicit operator bool() const { return slots_ != nullptr; }
  torch::Tensor get() const { return slots_ ? (*slots_)[index_] : torch::Tensor(); }
  torch::Tensor as(torch::ScalarType dtype) const;

 private:
  Parameter() = default;
  const std::vector<torch::Tensor>* slots_ = nullptr;
  size_t index_ = 0;
};

/// x W^T + b over rows [N, in]; without b if the spec has no bias. Adds the result of the adapter that the spec has for W
/// (adapters.hpp).
///
/// If several ranks share the model's matrices, each has some rows of W (a column-parallel matrix) or some columns (a row-parallel
/// matrix). The first one gives this rank's columns of the result. Of the second one, x has this rank's columns, and the result is the
/// sum over the ranks as rows of the stream.
class Linear {
 public:
  Linear(const Model& model, const std::string& name);
  torch::Tensor operator()(const torch::Tensor& x, const ForwardContext& context) const {
    return complete(product(x, context), context);
  }
  /// For the last product of a block. If `context` says that the block's output is unused, returns zeros. The gradients
  /// are the same. The product of a matrix with an adapter is always computed.
  torch::Tensor last(const torch::Tensor& x, const ForwardContext& context) const {
    return complete(product(x, context, context.output_unused), context, context.output_unused);
  }

  /// The two steps of operator(). product() is the product on this rank: of a row-parallel matrix without the bias, and before the sum over
  /// the ranks.
  torch::Tensor product(const torch::Tensor& x, const ForwardContext& context, bool unused = false) const;
  torch::Tensor complete(torch::Tensor products, const ForwardContext& context, bool unused = false) const;
  /// The sum of two row-parallel products, with one sum over the ranks.
  static torch::Tensor complete_sum(const Linear& a, const Linear& b, torch::Tensor sum, const ForwardContext& context);

 private:
  struct Adapter {
    Parameter a, b, magnitude;  ///< `magnitude` may be missing
    double scale;
    Dropout dropout;
  };
  WeightGradients::Pointer later(const torch::Tensor& x, const ForwardContext& context) const;
  torch::Tensor adapted(const torch::Tensor& x, const torch::Tensor& bias, const ForwardContext& context) const;

  Parameter weight_, bias_;
  std::optional<MaskPart> columns_;  ///< of a row-parallel matrix that ranks share: those of x
  std::optional<Adapter> adapter_;
};

class LayerNorm {
 public:
  LayerNorm(const Model& model, const std::string& name, double eps);
  torch::Tensor operator()(const torch::Tensor& x) const;

 private:
  Parameter weight_, bias_;
  double eps_;
};

/// Whether the weight of an RMSNorm is stored minus 1. With such a weight, 16-bit values are multiplied in fp32, as in
/// Gemma.
enum class StoredWeight { plain, minus_one };

/// x / sqrt(mean(x^2) + eps) * weight over the last dim of rows (Zhang and Sennrich 2019). Saves x and one statistic per
/// row.
class RmsNorm {
 public:
  RmsNorm(const Model& model, const std::string& name, double eps, StoredWeight stored = StoredWeight::plain);
  torch::Tensor operator()(const torch::Tensor& x) const;
  /// The norm of rows x; if the ranks of `axis` divide the weight, x has this rank's columns of the rows.
  torch::Tensor operator()(const torch::Tensor& x, const TensorAxis* axis) const;

 private:
  Parameter weight_;
  double eps_;
  StoredWeight stored_;
  int64_t whole_ = 0;  ///< columns of all ranks; 0: this rank has all of them
  int replicas_ = 1;   ///< ranks that have the same columns
};
torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double eps,
                       StoredWeight stored = StoredWeight::plain);

enum class Activation { silu, gelu, gelu_tanh, relu };
/// The activation with a name of model.activation.
Activation activation_named(const std::string& name);

/// The activation of x. x must be a temporary that has no other user, because gelu() may overwrite it.
torch::Tensor activated(const torch::Tensor& x, Activation activation);

/// activation(gate) * up (Shazeer 2020). Saves only gate and up; backward recomputes the activation.
torch::Tensor gated(const torch::Tensor& gate, const torch::Tensor& up, Activation activation);

}  // namespace runner
