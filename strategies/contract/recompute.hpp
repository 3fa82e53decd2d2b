// Activation checkpointing: a block keeps only its input and runs again in backward.
//
// LibTorch's saved-tensor hooks take Python objects in this version, so this is a custom Function: forward runs the
// block without a graph; backward runs it with one and differentiates that. Parameters are inputs of the Function, so
// their gradients leave it through the outer graph and hooks on them (Reducer, FSDP) see one gradient a block, as
// without checkpointing.
#pragma once
#include <functional>
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/host_checkpoints.hpp"

namespace runner {

/// Runs `run(x)` without recording it for autograd, and runs it again in the backward pass to differentiate it. Both calls
/// must compute the same values (dropout is keyed, see ForwardContext). `parameters`: all leaves that `run` reads, tied ones
/// too; a leaf that is missing gets no gradient from this block. They must be usable when the gradient of the result is
/// known. `host`: keeps `x` between forward and backward; it must outlive the graph.
torch::Tensor recompute(const torch::Tensor& x, const std::vector<torch::Tensor>& parameters,
                        std::function<torch::Tensor(const torch::Tensor&)> run, HostCheckpoints* host = nullptr);

}  // namespace runner
