// Records the memory that the blocks of a model take: it runs them on tensors without values, under an allocator that counts. So a block of
// any size takes about a millisecond and no memory. The kernels are those of the job's device (contract/profiled.hpp).
#pragma once
#include <vector>

#include "strategies/contract/block_profile.hpp"
#include "strategies/contract/entry.hpp"
#include "strategies/contract/module.hpp"

namespace runner {

/// One profile for each block of job.model. `model` was built from that spec, and its slots and buffers are
/// overwritten. `leaf`: the dtype of parameters in its slots. Layers that are alike are recorded once. `device`: the
/// CPU computes the blocks, for comparison, without axes. Throws c10::Error if an operator has no form without values.
std::vector<BlockProfile> record_blocks(Model& model, const Job& job, DType leaf, torch::Device device = torch::kMeta);

}  // namespace runner
