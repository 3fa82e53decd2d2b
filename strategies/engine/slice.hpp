// Boxes of tensors and intervals of their elements: the part of a tensor that a rank has. Torch-free.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace runner {

/// A box of a tensor: `size[d]` indices from `start[d]` on, in each dimension d. Without dimensions it is the whole
/// tensor.
struct TensorSlice {
  std::vector<int64_t> start = {}, size = {};
  bool whole() const { return start.empty(); }
  friend bool operator==(const TensorSlice&, const TensorSlice&) = default;
};

/// Whether the slice is inside a tensor of that shape.
bool is_inside(const TensorSlice& slice, const std::vector<int64_t>& shape);
/// The slice in its normal form: without dimensions if it is the whole tensor.
TensorSlice normalized(const TensorSlice& slice, const std::vector<int64_t>& shape);
/// Number of elements of a slice of a tensor of that shape.
int64_t slice_numel(const TensorSlice& slice, const std::vector<int64_t>& shape);
/// Whether two slices of a tensor of that shape have a common element.
bool slices_overlap(const TensorSlice& a, const TensorSlice& b, const std::vector<int64_t>& shape);
/// "[0:4, 2:6]", or "" for the whole tensor.
std::string to_text(const TensorSlice& slice);

/// Elements [begin, end) of a flattened slice.
struct SlicePart {
  TensorSlice slice = {};
  int64_t begin = 0, end = 0;
};

/// Finds the elements that two parts of a tensor have in common. Calls `run(at_a, at_b, count)` for each run of `count`
/// such elements: they begin at element `at_a` of the flattened slice of `a`, and at `at_b` of that of `b`. Each element
/// is in one call.
void for_each_common(const std::vector<int64_t>& shape, const SlicePart& a, const SlicePart& b,
                     const std::function<void(int64_t at_a, int64_t at_b, int64_t count)>& run);

}  // namespace runner
