// `colossalai`: parameters, gradients and optimizer state are sharded in chunks, which can be in host memory.
//
// A chunk is a unit of the plan: parameters in the order of their use fill it up to a size that wastes little. It is gathered when a block
// uses one of them. ColossalAI finds out in the first step when chunks are used and how much memory the rest needs. Here both are known
// before the first step, from the program.
// Source: Fang et al., Parallel Training of Pre-Trained Models via Chunk-Based Dynamic Memory Management (PatrickStar, TPDS 2023);
// colossalai/zero/gemini of ColossalAI v0.2.5; Lightning 1.9's ColossalAIStrategy.
#pragma once
#include "strategies/program/parallel_plan.hpp"

namespace runner {

Entry colossalai_entry();

}  // namespace runner
