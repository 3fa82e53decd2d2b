// The head with any loss of tokens: logits of a few tokens at a time, gradients made along with the loss.
#pragma once
#include "strategies/contract/module.hpp"

namespace runner {

/// Sum of `loss` over targets other than -100; a scalar in fp32, in fp64 for fp64 inputs. Everything else is as in
/// chunked_cross_entropy(): logits of at most `chunk_tokens` tokens (0 = all) exist at once, a chunk's gradient is
/// taken in forward while they are there, and backward works once. `loss` is called with the tokens that count, in
/// order, at least one; beside the logits it holds what it makes of them, and their gradient.
torch::Tensor chunked_token_loss(const torch::Tensor& hidden, const torch::Tensor& weight, const torch::Tensor& targets,
                                 int64_t chunk_tokens, const TokenLoss& loss);

}  // namespace runner
