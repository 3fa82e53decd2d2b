// The head's loss: logits of a few tokens at a time, gradients made along with the loss.
#pragma once

#include "strategies/collective/libtorch.hpp"

namespace runner {

/// Sum over targets other than -100 of cross_entropy(hidden weight^T, targets); a scalar in fp32, in fp64 for fp64
/// inputs. hidden [N, dim] in the compute dtype, weight [V, dim] in its own (cast to hidden's for the products),
/// targets int64 [N].
///
/// Logits of at most `chunk_tokens` tokens (0 = all) exist at once. When a gradient is needed, each chunk's share of it
/// is computed in forward, while its logits are there, and backward only scales: no logits are kept and none computed
/// twice, so the FLOPs are those of the plain form. Kept: the gradient of hidden, and that of weight (in weight's
/// dtype; summed over several chunks in fp32). Backward works once, as it scales in place.
torch::Tensor chunked_cross_entropy(const torch::Tensor& hidden, const torch::Tensor& weight,
                                    const torch::Tensor& targets, int64_t chunk_tokens);

}  // namespace runner
