// The head with any loss per token: computes logits for a few tokens at a time, and gradients together with the loss.
#pragma once
#include "runner/models/vocabulary.hpp"
#include "strategies/contract/module.hpp"

namespace runner {

/// Sum of `loss` over targets other than -100: a scalar in fp32, or in fp64 for fp64 inputs. As in
/// chunked_cross_entropy(), at most the logits of `chunk_tokens` tokens (0 = all) exist at the same time, forward
/// computes a chunk's gradient while its logits exist, and backward works only once. `loss` gets the chunk's tokens
/// with valid targets, in order, at least one if `chunk_tokens` is above 0. Its intermediate tensors and the logits'
/// gradient use memory in addition to the logits. With a soft cap, it gets cap * tanh(logit / cap).
///
/// With a divided vocabulary, weight and bias have this rank's rows. The logits of all ranks are joined, every rank computes the loss, and
/// the gradient of hidden is this rank's part of a sum over the ranks.
torch::Tensor chunked_token_loss(const torch::Tensor& hidden, const torch::Tensor& weight, const torch::Tensor& targets,
                                 int64_t chunk_tokens, const TokenLoss& loss, const LogitOptions& options = {});

}  // namespace runner
