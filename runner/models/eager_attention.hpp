// Attention in single operations of ATen, for forms that no fused kernel has.
#pragma once

#include "runner/models/attention_form.hpp"
#include "runner/models/dropout.hpp"
#include "strategies/collective/libtorch.hpp"

namespace runner {

/// Attention in tiles of attention_tile queries, as rows [B * T, H * head_dim]. q [B, T, H, head_dim], k and v [B, T, KV, head_dim].
/// There may be more keys than queries; the queries are then the last positions. Scores of one tile, with the keys that
/// it sees, exist at a time. Saves q, k and v; backward recomputes the probabilities. Gradients of keys and values are
/// summed over tiles in fp32 (fp64 for fp64).
torch::Tensor tiled_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                              const AttentionForm& form);

/// Attention with dropout of the probabilities. q [B, T, H, head_dim], k and v [B, T, KV, head_dim] -> [B, H, T,
/// head_dim]. It has one [B, H, T, T] tensor of probabilities in forward and about three in backward, which recomputes
/// them (one product more) instead of saving them; one more of each with a soft cap. `positions` [B, T]: those of the tokens of packed
/// rows in their sequences.
torch::Tensor dropout_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                                const AttentionForm& form, double p, MaskPlace place,
                                const torch::Tensor& positions = {});

}  // namespace runner
