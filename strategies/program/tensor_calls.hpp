// The collectives over the tensor axis that blocks call while an instruction is executed (BlockSpec::tensor_forward, tensor_backward).
// Torch-free.
#pragma once
#include <vector>

#include "strategies/program/program.hpp"

namespace runner {

struct TensorCalls {
  Collective kind;
  int64_t calls;
  int64_t bytes;  ///< payload of all calls together
};

/// Of one micro-batch; none for instructions that are not about a block, and without a tensor axis.
std::vector<TensorCalls> tensor_calls(const Job& job, const ParallelPlan& plan, const Instruction& instruction);

}  // namespace runner
