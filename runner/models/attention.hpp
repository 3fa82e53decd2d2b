// Causal self-attention over heads, with and without dropout.
#pragma once

#include "runner/models/dropout.hpp"
#include "strategies/collective/libtorch.hpp"

namespace runner {

/// softmax(Q K^T / sqrt(head_dim)) V with a causal mask. q [B, T, H, head_dim], k and v [B, T, KV, head_dim] may be
/// strided views (each key head serves H / KV query heads); the result is [B * T, H * head_dim].
///
/// Without active dropout no T x T tensor exists and one log-sum-exp a row is kept: host_attention for fp32 in host
/// memory, else ATen's fused kernel. ATen's fused kernels draw dropout from the default generator, so with dropout it
/// is written out: [B, H, T, T] probabilities exist once in forward and about three times in backward, which computes
/// them again (one product more) instead of keeping them.
torch::Tensor causal_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                               const Dropout& dropout, const ForwardContext& context);

}  // namespace runner
