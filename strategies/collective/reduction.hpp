// Elementwise reductions of several buffers in a fixed order, so that every transport gives the same bits.
//
// Sums run over a binary tree: sum(lo, hi) = sum(lo, mid) + sum(mid, hi) with mid = lo + (hi - lo) / 2. Contiguous
// groups of equal size that halve evenly are subtrees, so reducing inside groups and then between them (HYBRID_SHARD)
// gives the bits of one reduction over all. 16-bit floats are summed in float32 and rounded once. For bools SUM means "or"
// and PRODUCT means "and", as in NCCL.
#pragma once
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "strategies/collective/libtorch.hpp"

namespace runner {

/// out[i] = reduction over r of in[r][i], i < count. `out` may be one of the inputs.
using Reduction = void (*)(const std::byte* const* in, int ranks, std::byte* out, int64_t count);

/// Throws c10::Error for an unsupported operation or dtype. The message names it and the supported ones.
Reduction reduction_of(torch::ScalarType dtype, c10d::ReduceOp::RedOpType operation);

}  // namespace runner
