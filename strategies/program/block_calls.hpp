// The collectives and messages that blocks call while an instruction is executed, over the ranks that divide the matrices or the tokens
// (BlockCollectives in model_spec.hpp). Torch-free.
#pragma once
#include <vector>

#include "strategies/program/program.hpp"

namespace runner {

struct BlockCalls {
  Axis axis;  ///< tensor or context
  Collective kind;
  int ranks, stride;      ///< of the group, or of the two ranks of a message
  bool incoming = false;  ///< of messages: from the rank before, and not to the next one
  int64_t calls;
  int64_t bytes;  ///< payload of all calls together
};

/// The calls of one micro-batch; none for instructions that are not about a block, and without such axes.
std::vector<BlockCalls> block_calls(const Job& job, const ParallelPlan& plan, const Instruction& instruction);

}  // namespace runner
