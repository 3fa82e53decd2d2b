// The all-gather that gradients pass through.
#pragma once
#include <vector>

#include "strategies/collective/world.hpp"

namespace runner {

/// Rows [counts[rank], columns] of each rank -> those of all ranks, in the order of ranks. Backward gives each rank the
/// sum of the gradients that all ranks have for its rows. Collective in forward and in backward.
torch::Tensor gathered_rows(const torch::Tensor& rows, const ProcessGroup& group, const std::vector<int64_t>& counts);

}  // namespace runner
