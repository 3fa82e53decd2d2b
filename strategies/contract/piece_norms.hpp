// The 2-norms of large tensors, taken in pieces. The CPU's kernel of a norm adds float32 squares one after another: with 16 million
// equal elements the sum is 0.1 % too small, and it depends on how a tensor is cut into shards.
#pragma once
#include <vector>

#include "strategies/collective/libtorch.hpp"

namespace runner {

/// A list of norms on the tensors' device, of all pieces of all tensors. Their squares, added in float64, are the squared norm of all
/// elements. The tensors are contiguous, of one dtype and on one device, and there is at least one. The norms are in float64 for
/// float64 tensors, and otherwise in float32. At most a part of a 16-bit tensor is copied (tensor_update_elements()).
torch::Tensor piece_norms(const std::vector<torch::Tensor>& tensors);

}  // namespace runner
