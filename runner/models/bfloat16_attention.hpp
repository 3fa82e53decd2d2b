// Causal attention over bfloat16 heads in host memory, on CPUs with matrix instructions (AMX).
#pragma once

#include "runner/models/attention_form.hpp"
#include "strategies/collective/libtorch.hpp"

namespace runner {

/// Whether bfloat16_attention supports these: bfloat16 in host memory, head_dim a multiple of 32 up to 256, equal
/// numbers of keys and queries, matching sizes; and whether this CPU has matrix instructions that oneDNN may use.
bool bfloat16_attention_takes(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v);

/// softmax(scale Q K^T) V with a causal mask, without window and soft cap, as rows [B * T, H * head_dim]. q [B, T, H, head_dim], k and v
/// [B, T, KV, head_dim] may be strided views; each key head serves H / KV query heads.
///
/// Products have bfloat16 factors and fp32 results; probabilities and score gradients are rounded to bfloat16 between
/// them. Saves q, k, v, the result and one fp32 log-sum-exp per row (to base 2) for backward, which recomputes the
/// probabilities. One thread computes all of a key head, so the results do not depend on the number of threads. Scratch
/// memory per thread is a few blocks, two copies of a key head and, in backward, its two gradients in fp32.
/// Source: Dao, FlashAttention-2 (2023), arXiv:2307.08691.
torch::Tensor bfloat16_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                                 const AttentionForm& form = {});

}  // namespace runner
