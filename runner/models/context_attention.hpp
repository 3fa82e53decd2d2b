// Causal attention of ranks that share the tokens of each row: each has the queries, keys and values of its tokens.
// Sources: Grattafiori et al. 2024 (Llama 3, arXiv:2407.21783), section 3.3.2 (gather); Liu et al. 2023 (arXiv:2310.01889) and Brandon et
// al. 2023 (arXiv:2311.09431) (ring); Jacobs et al. 2023 (DeepSpeed-Ulysses, arXiv:2309.14509).
#pragma once

#include "runner/models/attention_form.hpp"
#include "runner/models/dropout.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/context_axis.hpp"

namespace runner {

/// causal_attention() (attention.hpp) in the axis's form. q [B, T, H, head_dim], k and v [B, T, KV, head_dim], with T tokens of this rank;
/// the result is [B * T, H * head_dim]. Collective, in forward and in backward. Results and gradients are one rank's up to rounding.
///
/// gather: a rank gathers the keys and values of all tokens, in forward and again in backward, and gets the sum of their gradients.
/// ring: keys and values travel to all ranks, while each computes with those it has; in backward they travel again, and their gradients
/// with them, in fp32 (fp64 for fp64), until they are back. Both save q, k, v, the result and one log-sum-exp for each query.
/// ulysses: H must be a multiple of the ranks. Key heads are repeated for ranks that share them.
///
/// `dropout`: of the probabilities of the complete rows, with the part of the heads that this rank has.
torch::Tensor context_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                                const PlacedDropout& dropout, const AttentionForm& form, const ContextAxis& axis,
                                const MicroBatch& batch);

}  // namespace runner
