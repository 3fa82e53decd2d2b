// The buffers of LibTorch's fused attention on a CPU: for each thread a block of scores, its statistics and its result, in fp32 (fp64
// for fp64), and the scores again in a 16-bit dtype. This header is torch-free.
// Source: LibTorch 2.11, aten/src/ATen/native/cpu/FlashAttentionKernel.cpp (cpu_flash_attention).
#pragma once
#include <algorithm>
#include <cstdint>

#include "strategies/contract/precision.hpp"

namespace runner {

/// For heads of `head_dim` elements and sequences of `tokens` tokens.
inline int64_t attention_buffer_bytes(int threads, DType dtype, int64_t tokens, int64_t head_dim) {
  const int64_t queries = std::min<int64_t>(tokens, tokens >= 768 ? 256 : tokens >= 192 ? 64 : 32);
  const int64_t keys = std::min<int64_t>(tokens, 512), bytes = bytes_of(dtype), wide = std::max<int64_t>(4, bytes);
  return threads * (wide * queries * (keys + 2 + head_dim) + (bytes < wide ? bytes * queries * keys : 0));
}

}  // namespace runner
