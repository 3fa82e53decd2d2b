// Embeddings of texts from the hidden states of an encoder (Reimers and Gurevych 2019, Sentence-BERT, section 3).
#pragma once
#include "runner/models/sequences.hpp"

namespace runner::encoder {

enum class Pooling {
  mean,  ///< of all tokens
  cls    ///< the first token
};

/// The hidden states [B, T, dim] behind the last transformer block -> [B, dim] in fp32. Of a row with several sequences, the first one
/// counts: the others are padding.
torch::Tensor pooled(const torch::Tensor& hidden, const TokenPositions& positions, Pooling pooling);

}  // namespace runner::encoder
