// One vector for each text from the hidden states of its tokens.
#pragma once
#include "runner/models/sequences.hpp"

namespace runner {

enum class Pooling {
  mean,  ///< of all tokens (Reimers and Gurevych 2019, Sentence-BERT, section 3)
  cls,   ///< the first token
  last   ///< the last token, which has seen all others in a decoder
};

/// Hidden states [B, T, dim] -> [B, dim] in fp32. Of a row with several sequences, the first one counts: the others are padding.
torch::Tensor pooled(const torch::Tensor& hidden, const TokenPositions& positions, Pooling pooling);

/// The states of the last token of each row's first sequence, [B, dim] in the dtype of `hidden`.
torch::Tensor last_states(const torch::Tensor& hidden, const TokenPositions& positions);

}  // namespace runner
