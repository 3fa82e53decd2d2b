// Types of the elements of arrays.
#pragma once
#include <cstdint>

namespace runner::pjrt {

enum class ElementType : uint8_t { boolean, int32, int64, float16, bfloat16, float32, float64 };

constexpr int64_t bytes_of(ElementType type) {
  switch (type) {
    case ElementType::boolean:
      return 1;
    case ElementType::float16:
    case ElementType::bfloat16:
      return 2;
    case ElementType::int32:
    case ElementType::float32:
      return 4;
    case ElementType::int64:
    case ElementType::float64:
      return 8;
  }
  return 0;
}

constexpr bool is_float(ElementType type) { return type >= ElementType::float16; }

}  // namespace runner::pjrt
