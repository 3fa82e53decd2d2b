// Types of arrays: their elements and their sizes.
#pragma once
#include <functional>
#include <numeric>
#include <vector>

#include "strategies/pjrt/element_type.hpp"

namespace runner::pjrt {

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
