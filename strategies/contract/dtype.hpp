// DType and ElementType as LibTorch's types.
#pragma once

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/precision.hpp"
#include "strategies/engine/batch_field.hpp"

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

/// The reverse; float32 for all other types.
inline DType dtype_of(const torch::Tensor& tensor) {
  for (const DType dtype : {DType::float64, DType::bfloat16, DType::float16})
    if (tensor.scalar_type() == scalar_type(dtype)) return dtype;
  return DType::float32;
}

inline torch::ScalarType scalar_type(ElementType type) {
  switch (type) {
    case ElementType::int64:
      return torch::kInt64;
    case ElementType::int32:
      return torch::kInt32;
    case ElementType::uint8:
      return torch::kUInt8;
    case ElementType::boolean:
      return torch::kBool;
    case ElementType::float32:
      return torch::kFloat32;
  }
  return torch::kFloat32;
}

}  // namespace runner
