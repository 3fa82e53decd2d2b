// Converts DType to LibTorch's type.
#pragma once

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/precision.hpp"

namespace runner {

inline torch::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return torch::kFloat64;
    case DType::float32:
      return torch::kFloat32;
    case DType::bfloat16:
      return torch::kBFloat16;
    case DType::float16:
      return torch::kFloat16;
  }
  return torch::kFloat32;
}

}  // namespace runner
