// The 8-bit comm hooks of PyTorch: their messages. This header is torch-free.
#pragma once
#include "strategies/reducers/built_in.hpp"

namespace runner {

BuiltInReducer quantization_per_tensor();
BuiltInReducer quantization_per_channel();

/// Elements of a row of quantization_perchannel_hook.
inline constexpr int64_t quantized_row = 512;
/// Bytes of the scale and the zero point of a row, both float32.
inline constexpr int64_t quantized_row_header = 8;
/// Bytes of a bucket's message: a header for each row of `row` elements, and a byte for each element.
inline int64_t quantized_message_bytes(int64_t elements, int64_t row) {
  return (elements + row - 1) / row * quantized_row_header + elements;
}

}  // namespace runner
