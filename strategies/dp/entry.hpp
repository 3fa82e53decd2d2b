// `dp` and `ddp2`: data parallelism with one process for each node, whose threads drive a device each.
//
// Source: torch.nn.DataParallel; Lightning 1.9's DataParallelStrategy and Lightning 1.6's DDP2Strategy. There one device scatters the batch,
// copies the model to the others before each step, and gathers outputs and gradients. Here each thread has a replica and its rows, and the
// threads sum gradients, so the first device has no more to do than the others.
#pragma once
#include "strategies/program/parallel_plan.hpp"

namespace runner {

Entry dp_entry();
Entry ddp2_entry();

}  // namespace runner
