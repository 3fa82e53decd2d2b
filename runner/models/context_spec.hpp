// The collectives of attention on ranks that share the tokens of each row (context_attention.hpp). Torch-free.
#pragma once
#include "strategies/contract/model_spec.hpp"

namespace runner {

/// The attention of a block, on this rank of the tensor axis.
struct AttentionSize {
  int64_t heads = 0, key_heads = 0, head_dim = 0;
};

/// Adds what the ranks of a context axis exchange. If one rank has complete rows, it adds nothing.
void add_context_traffic(BlockSpec& block, const AttentionSize& size, const ContextDivision& context);

}  // namespace runner
