// The common part of heads of decoders: the final norm of hidden states, which embeddings of texts need without the rest of the head.
#pragma once
#include "strategies/collective/libtorch.hpp"

namespace runner {

class FinalNorm {
 public:
  virtual ~FinalNorm() = default;
  /// The output of the last transformer block as rows [B * T, dim], normed.
  virtual torch::Tensor normed(const torch::Tensor& hidden) const = 0;
};

}  // namespace runner
