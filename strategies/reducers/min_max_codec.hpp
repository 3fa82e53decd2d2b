// Bagua's MinMaxUInt8: numbers as bytes, with the least and the largest of them.
#pragma once
#include "strategies/collective/libtorch.hpp"

namespace runner {

/// A message of min_max_bytes() bytes for `values` (1-d, float32). Values that are not finite make a message that decodes to NaN.
///
/// scale = 255 / (max - min + 1e-7), upper = rint(max scale), lower = upper - 255; a code is min(rint(x scale), upper) - lower.
torch::Tensor encode_min_max(const torch::Tensor& values);
/// The first `elements` of a message's values, float32: (code + lower) / scale.
torch::Tensor decode_min_max(const torch::Tensor& message, int64_t elements);

}  // namespace runner
