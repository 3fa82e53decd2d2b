// Calls the `loss` of a hook with tensors.
#pragma once

#include "runner/lua/hook_set.hpp"
#include "strategies/collective/libtorch.hpp"

namespace runner {

/// The losses [tokens] that the hook's `loss` returns for logits [tokens, vocab] and targets [tokens]. The handles of all
/// tensors of the call end with it. Throws Error(run_failed) if it fails or returns something else.
torch::Tensor loss_of_hook(lua::HookSet& hooks, const lua::Value& context, const torch::Tensor& logits,
                           const torch::Tensor& targets);

}  // namespace runner
