// Causal attention over fp32 heads in host memory, in blocks of keys (FlashAttention-2, Dao 2023, arXiv:2307.08691).
#pragma once

#include "runner/models/attention_form.hpp"
#include "strategies/collective/libtorch.hpp"

namespace runner {

/// Whether host_attention supports these: fp32 in host memory, head_dim up to 256, equal numbers of keys and queries,
/// matching sizes.
bool host_attention_takes(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v);

/// softmax(scale Q K^T) V with a causal mask and a window, without a soft cap, as rows [B * T, H * head_dim]. q [B, T, H, head_dim], k
/// and v [B, T, KV, head_dim] may be strided views; each key head serves H / KV query heads.
///
/// Saves q, k, v, the result and one log-sum-exp per row (to base 2) for backward, which recomputes the probabilities.
/// `positions` [B, T] (on the host): those of the tokens of packed rows in their sequences. A query sees only keys of its sequence.
///
/// One thread computes all of a key head of a sequence, so the results do not depend on the number of threads. Scratch memory is a
/// few blocks per thread. Blocks of keys outside of the window are skipped.
torch::Tensor host_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                             const AttentionForm& form = {}, const torch::Tensor& positions = {});

}  // namespace runner
