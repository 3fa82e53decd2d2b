// Products of a frozen matrix that has an adapter: LoRA and DoRA (adapters.hpp has the formulas and the papers).
#pragma once
#include "runner/models/dropout.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/weight_gradients.hpp"

namespace runner {

/// The low-rank product of an adapter: A [rank, in], B [out, rank].
struct LowRank {
  torch::Tensor a, b;
  double scale = 1;
  PlacedDropout dropout = {};
};

/// x W^T + bias + scale drop(x) A^T B^T for rows x [N, in] and a frozen W [out, in]; `bias` may be undefined. Saves x and the product
/// with A. Backward draws the mask again. It leaves the gradients of A and B to `later` if that is not null.
torch::Tensor lora_linear(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                          const LowRank& adapter, const WeightGradients::Pointer& later = {});

/// lora_linear() with magnitudes m [out], in fp32 or wider. Also saves the sum that is multiplied by m / n, [N, out].
torch::Tensor dora_linear(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                          const LowRank& adapter, const torch::Tensor& magnitude,
                          const WeightGradients::Pointer& later = {});

/// The norms of the rows of W + scale B A, in fp32 (fp64 for fp64 matrices), without a tensor of W's size: the squares are
/// |w|^2 + 2 scale <w, BA> + scale^2 |BA|^2. Matrices of 16 bits are converted in parts of some rows.
torch::Tensor adapted_row_norms(const torch::Tensor& weight, const torch::Tensor& a, const torch::Tensor& b,
                                double scale);

}  // namespace runner
