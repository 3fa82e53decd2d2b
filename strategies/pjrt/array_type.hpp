// Types of arrays: their elements and their sizes.
#pragma once
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

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

using Shape = std::vector<int64_t>;

struct Type {
  ElementType element = ElementType::float32;
  Shape shape;
  int64_t numel() const { return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies()); }
  int64_t bytes() const { return numel() * bytes_of(element); }
  bool operator==(const Type&) const = default;
};

/// The numbers first, first + 1, ... before `end`.
inline Shape counted_dims(int64_t first, int64_t end) {
  Shape dims;
  for (int64_t d = first; d < end; ++d) dims.push_back(d);
  return dims;
}

}  // namespace runner::pjrt
