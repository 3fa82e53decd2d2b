// Self-attention over heads, in every form: causal or not, with and without dropout, windows and soft caps.
#pragma once

#include "runner/models/attention_form.hpp"
#include "runner/models/dropout.hpp"
#include "runner/models/sequences.hpp"
#include "strategies/collective/libtorch.hpp"

namespace runner {

/// softmax(scale Q K^T) V with a causal mask and the form's window and soft cap. q [B, T, H, head_dim], k and v [B, T,
/// KV, head_dim] may be strided views (each key head serves H / KV query heads); the result is [B * T, H * head_dim].
///
/// Without active dropout and without a soft cap, no T x T tensor exists, and one log-sum-exp per row is saved for
/// backward. fp32 in host memory uses host_attention. Without a window shorter than T, bfloat16 in host memory uses
/// bfloat16_attention if the CPU has matrix instructions, and everything else uses ATen's fused kernel. These draw
/// dropout from the default generator, so attention with dropout is written in single operations; soft caps and windows
/// too, in tiles of queries (eager_attention.hpp).
///
/// In packed rows a query sees only keys of its sequence. host_attention and attention with dropout take all sequences at once; the
/// others run once for each sequence, and their results are joined.
///
/// If several ranks share the tokens of the rows, T counts this rank's tokens (context_attention.hpp).
torch::Tensor causal_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                               const Dropout& dropout, const ForwardContext& context, AttentionForm form = {},
                               const TokenPositions& positions = {});

/// causal_attention() of complete rows, with a certain mask of probabilities.
torch::Tensor attention_of_rows(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                                const PlacedDropout& dropout, const AttentionForm& form,
                                const TokenPositions& positions);

/// attention_of_rows() without dropout, in rows that are one sequence each.
torch::Tensor undropped_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                                  const AttentionForm& form = {});

/// softmax(Q K^T / sqrt(head_dim)) V, in which each query sees all keys of its sequence. ATen's fused kernel runs once for each
/// sequence of packed rows; attention with dropout is written in single operations.
torch::Tensor bidirectional_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                                      const Dropout& dropout, const ForwardContext& context,
                                      const TokenPositions& positions = {});

}  // namespace runner
