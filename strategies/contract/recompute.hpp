// Activation checkpointing: only the input of a block is saved, and the block runs again in backward.
//
// LibTorch's saved-tensor hooks need Python objects in this version, so this is a custom Function. Its forward runs the block
// without a graph. Its backward runs the block with a graph and differentiates it. Parameters are inputs of the Function, so
// their gradients are accumulated by the outer graph, and hooks on parameters (Reducer, FSDP) run once for each block, as without
// checkpointing.
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
