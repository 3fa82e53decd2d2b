// The loss of the head: computes logits for a few tokens at a time, and gradients together with the loss.
#pragma once

#include "runner/models/vocabulary.hpp"
#include "strategies/collective/libtorch.hpp"

namespace runner {

/// Sum of cross_entropy(hidden weight^T + bias, targets) over targets other than -100: a scalar in fp32, or in fp64 for fp64
/// inputs. hidden [N, dim] is in the compute dtype, weight [V, dim] in any dtype (cast to hidden's for the products),
/// targets int64 [N]. With a soft cap, logits become cap * tanh(logit / cap), in the compute dtype.
///
/// At most the logits of `chunk_tokens` tokens (0 = all) exist at the same time. bfloat16 logits in host memory are
/// overwritten by their gradient; others are copied to the loss's dtype. If a gradient is needed, forward computes each
/// chunk's part of it while the chunk's logits exist, and backward only scales it. So no logits are saved or recomputed,
/// and the FLOPs equal those without chunks. Saved for backward: the gradients of hidden, weight and bias (in weight's
/// dtype; summed in fp32 if there are several chunks). Backward works only once, because it scales in place.
///
/// With a divided vocabulary, weight and bias have this rank's rows. Three values per token are gathered in each chunk, and all ranks
/// return the same loss. The gradient of hidden is this rank's part of a sum over the ranks. A target outside of the vocabulary is
/// refused.
torch::Tensor chunked_cross_entropy(const torch::Tensor& hidden, const torch::Tensor& weight,
                                    const torch::Tensor& targets, int64_t chunk_tokens,
                                    const LogitOptions& options = {});

/// cap * tanh(logits / cap); the logits themselves if the cap is 0. Overwrites them.
torch::Tensor soft_capped(torch::Tensor logits, double cap);

}  // namespace runner
