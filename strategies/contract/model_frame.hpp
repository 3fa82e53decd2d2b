// A model without its blocks, for parts of it: copying all blocks to select some of them would cost more. Torch-free.
#pragma once
#include "strategies/contract/model_spec.hpp"

namespace runner {

/// The spec without blocks and without `stage`.
inline ModelSpec without_blocks(const ModelSpec& whole) {
  return {.family = whole.family,
          .blocks = {},
          .batch = whole.batch,
          .vocab_size = whole.vocab_size,
          .dim = whole.dim,
          .seq_len = whole.seq_len,
          .loss_chunk_tokens = whole.loss_chunk_tokens,
          .division = whole.division,
          .context = whole.context,
          .stage = {},
          .adapter = whole.adapter,
          .quantization = whole.quantization,
          .task = whole.task,
          .buffers = whole.buffers,
          .buffer_elements = whole.buffer_elements,
          .profiler = whole.profiler};
}

}  // namespace runner
