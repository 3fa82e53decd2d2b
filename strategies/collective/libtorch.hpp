// LibTorch's tensors and autograd. <torch/torch.h> also brings torch::nn, optim, data and jit, which nobody here uses
// and which make every file that includes it 4 s slower to compile.
#pragma once
#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace runner {

/// The dtype of sums, statistics and losses of these values: fp32, or fp64 for fp64.
inline torch::ScalarType wide_dtype(const torch::Tensor& values) {
  return values.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

}  // namespace runner
