#include "strategies/engine/slice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/text.hpp"

namespace runner {

namespace {

/// The slice with a start and a size for each dimension of the tensor.
TensorSlice written_out(const TensorSlice& slice, const std::vector<int64_t>& shape) {
  return slice.whole() ? TensorSlice{std::vector<int64_t>(shape.size(), 0), shape} : slice;
}

/// Elements between neighbours in dimension d of a contiguous tensor of that shape.
std::vector<int64_t> strides_of(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

/// The common indices [low, high) of two slices in each dimension.
struct Common {
  std::vector<int64_t> low, high;
  bool empty = false;

  Common(const TensorSlice& a, const TensorSlice& b) {
    for (size_t d = 0; d < a.start.size(); ++d) {
      low.push_back(std::max(a.start[d], b.start[d]));
      high.push_back(std::min(a.start[d] + a.size[d], b.start[d] + b.size[d]));
      empty = empty || low[d] >= high[d];
    }
  }
  /// Whether a slice has no other indices in dimension d.
  bool covers(const TensorSlice& slice, size_t d) const { return high[d] - low[d] == slice.size[d]; }
};

/// Leaves out the indices of dimension 0 that are outside the interval. `stride`: elements of the slice for each index.
void narrow(Common& common, const SlicePart& part, int64_t stride) {
  common.low[0] = std::max(common.low[0], part.slice.start[0] + part.begin / stride);
  common.high[0] = std::min(common.high[0], part.slice.start[0] + (part.end + stride - 1) / stride);
}

}  // namespace

bool is_inside(const TensorSlice& slice, const std::vector<int64_t>& shape) {
  if (slice.start.size() != slice.size.size()) return false;
  if (slice.whole()) return true;
  if (slice.start.size() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d)
    if (slice.start[d] < 0 || slice.size[d] < 0 || slice.start[d] > shape[d] ||
        slice.size[d] > shape[d] - slice.start[d])
      return false;
  return true;
}

TensorSlice normalized(const TensorSlice& slice, const std::vector<int64_t>& shape) {
  return slice.size == shape ? TensorSlice{} : slice;
}

int64_t slice_numel(const TensorSlice& slice, const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t size : slice.whole() ? shape : slice.size) count *= size;
  return count;
}

bool slices_overlap(const TensorSlice& a, const TensorSlice& b, const std::vector<int64_t>& shape) {
  return !Common(written_out(a, shape), written_out(b, shape)).empty;
}

std::string to_text(const TensorSlice& slice) {
  if (slice.whole()) return "";
  std::vector<std::string> parts;
  for (size_t d = 0; d < slice.start.size(); ++d)
    parts.push_back(fmt::format("{}:{}", slice.start[d], slice.start[d] + slice.size[d]));
  return "[" + join(parts, ", ") + "]";
}

void for_each_common(const std::vector<int64_t>& shape, const SlicePart& part_a, const SlicePart& part_b,
                     const std::function<void(int64_t, int64_t, int64_t)>& run) {
  const std::vector<int64_t> box =
      shape.empty() ? std::vector<int64_t>{1} : shape;  // a number is a tensor of one element
  const SlicePart a{written_out(part_a.slice, box), part_a.begin, part_a.end};
  const SlicePart b{written_out(part_b.slice, box), part_b.begin, part_b.end};
  Common common(a.slice, b.slice);
  if (common.empty) return;
  const auto strides_a = strides_of(a.slice.size), strides_b = strides_of(b.slice.size);
  // Common elements are in a row in both slices along dimension `row` and all later ones.
  size_t row = box.size() - 1;
  while (row > 0 && common.covers(a.slice, row) && common.covers(b.slice, row)) --row;
  if (row > 0) {  // many rows: leaves out those that neither interval reaches
    narrow(common, a, strides_a[0]);
    narrow(common, b, strides_b[0]);
    if (common.low[0] >= common.high[0]) return;
  }
  const int64_t length = (common.high[row] - common.low[row]) * strides_a[row];
  std::vector<int64_t> index = common.low;
  while (true) {
    int64_t at_a = 0, at_b = 0;
    for (size_t d = 0; d <= row; ++d) {
      at_a += (index[d] - a.slice.start[d]) * strides_a[d];
      at_b += (index[d] - b.slice.start[d]) * strides_b[d];
    }
    const int64_t skip = std::max({int64_t{0}, a.begin - at_a, b.begin - at_b});
    const int64_t end = std::min({length, a.end - at_a, b.end - at_b});
    if (skip < end) run(at_a + skip, at_b + skip, end - skip);
    size_t d = row;  // the next row: the last dimension before `row` counts first
    while (d > 0 && ++index[d - 1] == common.high[d - 1]) {
      index[d - 1] = common.low[d - 1];
      --d;
    }
    if (d == 0) return;
  }
}

}  // namespace runner
