// `ddp`: every rank has a replica of the model, and gradients are all-reduced in buckets during backward.
//
// A bucket has whole blocks, so it is reduced as soon as the backward of its first block ends. Traffic: one all-reduce of all
// gradients a step. Source: Li et al., PyTorch Distributed (VLDB 2020).
#pragma once
#include "strategies/program/parallel_plan.hpp"

namespace runner {

Entry ddp_entry();
/// The entry of ddp on the data axis of a mesh in which the other ranks are a pipeline.
Entry pipeline_entry();

/// The plan of a job. The strategy and the predictions of memory and traffic use the same plan.
ParallelPlan ddp_plan(const Job& job);

}  // namespace runner
