// Random ways to cut a tensor into parts, and the elements of a part by the definition of a slice.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

#include "strategies/engine/slice.hpp"

namespace runner::testing {

using Sizes = std::vector<int64_t>;

struct Drawn {
  std::mt19937 generator;
  explicit Drawn(unsigned seed) : generator(seed) {}
  int64_t operator()(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(generator); }
};

/// Cuts a tensor into slices that do not overlap, along random dimensions.
inline void cut(Drawn& draw, const TensorSlice& slice, int64_t cuts, std::vector<TensorSlice>& slices) {
  const auto dim = static_cast<size_t>(draw(0, std::ssize(slice.size) - 1));
  if (cuts == 0 || slice.size[dim] < 2) return slices.push_back(slice);
  const int64_t first = draw(1, slice.size[dim] - 1);
  TensorSlice low = slice, high = slice;
  low.size[dim] = first;
  high.start[dim] += first;
  high.size[dim] -= first;
  cut(draw, low, cuts - 1, slices);
  cut(draw, high, cuts - 1, slices);
}

/// Cuts a tensor into slices, and each slice into intervals. Together they have each element once.
inline std::vector<SlicePart> random_slicing(Drawn& draw, const Sizes& shape) {
  std::vector<TensorSlice> slices;
  cut(draw, {Sizes(shape.size(), 0), shape}, draw(0, 3), slices);
  std::vector<SlicePart> parts;
  for (const auto& slice : slices) {
    const int64_t numel = slice_numel(slice, shape), border = draw(0, numel);
    if (border > 0) parts.push_back({normalized(slice, shape), 0, border});
    if (border < numel) parts.push_back({normalized(slice, shape), border, numel});
  }
  return parts;
}

/// The indices, in the flattened tensor, of the elements of a part: one by one, with the definition of a slice.
inline std::vector<int64_t> elements_of(const SlicePart& part, const Sizes& shape) {
  const Sizes start = part.slice.whole() ? Sizes(shape.size(), 0) : part.slice.start;
  const Sizes size = part.slice.whole() ? shape : part.slice.size;
  std::vector<int64_t> elements;
  for (int64_t at = part.begin; at < part.end; ++at) {
    int64_t element = 0, stride = 1, rest = at;
    for (size_t d = shape.size(); d-- > 0;) {
      element += (start[d] + rest % size[d]) * stride;
      rest /= size[d];
      stride *= shape[d];
    }
    elements.push_back(element);
  }
  return elements;
}

inline Sizes random_shape(Drawn& draw) {
  Sizes shape;
  for (int64_t dims = draw(1, 3); dims > 0; --dims) shape.push_back(draw(1, 9));
  return shape;
}

}  // namespace runner::testing
