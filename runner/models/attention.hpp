// Causal self-attention over heads, with and without dropout.
#pragma once

#include "runner/models/dropout.hpp"
#include "strategies/collective/libtorch.hpp"

namespace runner {

/// softmax(Q K^T / sqrt(head_dim)) V with a causal mask. q [B, T, H, head_dim], k and v [B, T, KV, head_dim] may be
/// strided views (each key head serves H / KV query heads); the result is [B * T, H * head_dim].
///
/// Without active dropout, no T x T tensor exists, and one log-sum-exp per row is saved for backward. fp32 in host
/// memory uses host_attention. bfloat16 in host memory uses bfloat16_attention if the CPU has matrix instructions.
/// Everything else uses ATen's fused kernel, which draws dropout from the default generator. So attention with dropout
/// is written in single operations. It has one [B, H, T, T] tensor of probabilities in forward and about three in
/// backward, which recomputes them (one product more) instead of saving them.
torch::Tensor causal_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                               const Dropout& dropout, const ForwardContext& context);

}  // namespace runner
