// `zero`: DeepSpeed's ZeRO stages 1, 2 and 3, with the option names of its configuration files.
//
// Stages 1 and 2 keep every parameter on every rank in the dtype of computation. Masters, optimizer state and (stage 2) gradients
// are sharded by buckets. Traffic: one reduce-scatter and one all-gather, 2 x parameters; stage 2 reduces after every
// micro-batch. Stage 3 also shards the parameters and gathers them block by block: 3 x parameters, less for persistent parameters
// and those that stay gathered. With offload, optimizer state (and in stage 3 the shards of the parameters) are in host memory or
// on NVMe.
// Source: Rajbhandari et al., ZeRO (SC 2020) and ZeRO-Infinity (SC 2021); Ren et al., ZeRO-Offload (ATC 2021).
#pragma once
#include "strategies/program/parallel_plan.hpp"

namespace runner {

Entry zero_entry();

/// The plan of a job. The strategy and the predictions of memory and traffic use the same plan.
ParallelPlan zero_plan(const Job& job);

}  // namespace runner
