#include "strategies/xla/strided.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "runner/base/error.hpp"

namespace runner::xla {

using pjrt::ModuleText, pjrt::Shape, pjrt::Value;

namespace {

int64_t product(const Shape& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies());
}

/// The dimensions with more than one element in memory, the one with the largest stride first.
std::vector<size_t> ordered_dims(const Strided& tensor) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < tensor.sizes.size(); ++d)
    if (tensor.sizes[d] > 1 && tensor.strides[d] > 0) dims.push_back(d);
  std::ranges::stable_sort(dims, [&](size_t a, size_t b) { return tensor.strides[a] > tensor.strides[b]; });
  return dims;
}

/// A box of an array that has been given the shape [extents..., inner]: `begin[i]` is its first index in dimension i. The last dimension
/// is the distance between neighbours of the innermost dimension of the tensor, and the box has one index of it.
struct Box {
  std::vector<size_t> dims = {};  ///< of the tensor, without those that repeat elements
  Shape extents = {}, begin = {}, size = {};
};

std::string described(const Strided& tensor) {
  return fmt::format("a tensor of sizes [{}] with strides [{}]", fmt::join(tensor.sizes, ", "),
                     fmt::join(tensor.strides, ", "));
}

/// nullopt: the box would not be inside the array.
std::optional<Box> box_of(const Strided& tensor, int64_t count) {
  Box box{.dims = ordered_dims(tensor)};
  int64_t whole = count, rest = tensor.offset;
  const auto add = [&](int64_t stride, int64_t size) {
    if (whole % stride != 0) return false;
    box.extents.push_back(whole / stride);
    box.begin.push_back(rest / stride);
    box.size.push_back(size);
    rest %= stride;
    whole = stride;
    return box.begin.back() + size <= box.extents.back();
  };
  for (const size_t d : box.dims)
    if (!add(tensor.strides[d], tensor.sizes[d])) return std::nullopt;
  return add(1, 1) ? std::optional(box) : std::nullopt;
}

/// Elements from the first to the last one, along dimensions `dims` from number `first` on.
int64_t span_of(const Strided& tensor, const std::vector<size_t>& dims, size_t first = 0) {
  int64_t span = 1;
  for (size_t i = first; i < dims.size(); ++i) span += (tensor.sizes[dims[i]] - 1) * tensor.strides[dims[i]];
  return span;
}

void check_strides(const Strided& tensor) {
  const auto dims = ordered_dims(tensor);
  for (size_t i = 0; i < dims.size(); ++i)
    if (tensor.strides[dims[i]] < span_of(tensor, dims, i + 1))
      throw run_error("{} cannot be compiled: its dimensions overlap", described(tensor));
}

bool is_whole(const Strided& tensor, int64_t count) {
  int64_t stride = 1;
  for (size_t d = tensor.sizes.size(); d-- > 0;) {
    if (tensor.sizes[d] > 1 && tensor.strides[d] != stride) return false;
    stride *= tensor.sizes[d];
  }
  return tensor.offset == 0 && stride == count;
}

/// Position in `dims` of each dimension of the tensor that is in it.
Shape positions_in(const std::vector<size_t>& dims) {
  Shape order(dims.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](int64_t i) { return dims[static_cast<size_t>(i)]; });
  return order;
}

/// Elements in the order of `dims` as the tensor's sizes.
Value as_tensor(ModuleText& text, const Value& ordered, const std::vector<size_t>& dims, const Strided& tensor) {
  const Value transposed = text.transpose(ordered, positions_in(dims));
  if (product(tensor.sizes) == transposed.type.numel()) return text.reshape(transposed, tensor.sizes);
  Shape kept;
  for (size_t d = 0; d < tensor.sizes.size(); ++d)
    if (std::ranges::find(dims, d) != dims.end()) kept.push_back(static_cast<int64_t>(d));
  return text.broadcast(transposed, tensor.sizes, kept);
}

/// The tensor's elements in the order of `dims`.
Value in_order_of(ModuleText& text, const Value& elements, const std::vector<size_t>& dims, const Strided& tensor) {
  Shape squeezed, order(dims.size());
  const auto positions = positions_in(dims);
  for (const int64_t i : positions) squeezed.push_back(tensor.sizes[dims[static_cast<size_t>(i)]]);
  for (size_t i = 0; i < positions.size(); ++i) order[static_cast<size_t>(positions[i])] = static_cast<int64_t>(i);
  return text.transpose(text.reshape(elements, squeezed), order);
}

/// The last dimension with another size: without elements at its end, or with zeros there.
Value with_last_size(ModuleText& text, const Value& a, int64_t size) {
  const int64_t last = std::ssize(a.shape()) - 1, length = a.shape().back();
  if (length < size) return text.pad(a, last, 0, size - length, 0);
  return length == size ? a : text.slice(a, last, 0, size);
}

/// The elements in the order of `dims`, for any strides. Each turn divides what is between neighbours of the dimension before.
Value picked(ModuleText& text, const Value& flat, const Strided& tensor, const std::vector<size_t>& dims) {
  Value a = text.slice(flat, 0, tensor.offset, tensor.offset + span_of(tensor, dims));
  Shape sizes;
  for (const size_t d : dims) {
    a = with_last_size(text, a, tensor.sizes[d] * tensor.strides[d]);
    sizes.push_back(tensor.sizes[d]);
    Shape shape = sizes;
    shape.push_back(tensor.strides[d]);
    a = text.reshape(a, shape);
  }
  return text.reshape(with_last_size(text, a, 1), sizes);
}

/// The opposite: a flat array of `count` elements, with zeros between those of the tensor.
Value spread(ModuleText& text, const Value& ordered, const Strided& tensor, const std::vector<size_t>& dims,
             int64_t count) {
  Shape shape = ordered.shape();
  shape.push_back(1);
  Value a = text.reshape(ordered, shape);
  for (size_t i = dims.size(); i-- > 0;) {
    a = with_last_size(text, a, tensor.strides[dims[i]]);
    shape.assign(a.shape().begin(), a.shape().end() - 1);
    shape.back() *= tensor.strides[dims[i]];
    a = text.reshape(a, shape);
  }
  const int64_t span = span_of(tensor, dims);
  return text.pad(with_last_size(text, a, span), 0, tensor.offset, count - tensor.offset - span, 0);
}

}  // namespace

Value read(ModuleText& text, const Value& array, const Strided& tensor) {
  const int64_t count = array.type.numel();
  if (is_whole(tensor, count)) return text.reshape(array, tensor.sizes);
  if (product(tensor.sizes) == 0) return text.splat(0, {array.type.element, tensor.sizes});
  check_strides(tensor);
  const auto box = box_of(tensor, count);
  if (!box) {
    const auto dims = ordered_dims(tensor);
    return as_tensor(text, picked(text, text.reshape(array, {count}), tensor, dims), dims, tensor);
  }
  Value source = text.reshape(array, box->extents);
  for (size_t i = 0; i < box->size.size(); ++i)
    if (box->size[i] != box->extents[i])
      source = text.slice(source, static_cast<int64_t>(i), box->begin[i], box->begin[i] + box->size[i]);
  return as_tensor(text, text.reshape(source, {box->size.begin(), box->size.end() - 1}), box->dims, tensor);
}

Value written(ModuleText& text, const Value& array, const Strided& tensor, const Value& elements) {
  const int64_t count = array.type.numel();
  RUNNER_CHECK(elements.type == pjrt::Type(array.type.element, tensor.sizes));
  if (is_whole(tensor, count)) return text.reshape(elements, array.shape());
  if (product(tensor.sizes) == 0) return array;
  check_strides(tensor);
  for (size_t d = 0; d < tensor.sizes.size(); ++d)
    if (tensor.sizes[d] > 1 && tensor.strides[d] == 0)
      throw run_error("a write to {} cannot be compiled: its elements overlap", described(tensor));
  const auto dims = ordered_dims(tensor);
  const Value ordered = in_order_of(text, elements, dims, tensor);
  if (const auto box = box_of(tensor, count)) {
    const Value boxed = text.reshape(ordered, box->size);
    return text.reshape(text.update_slice(text.reshape(array, box->extents), boxed, box->begin), array.shape());
  }
  const Value everywhere = text.splat(1, {pjrt::ElementType::boolean, ordered.shape()});
  const Value is_written = spread(text, everywhere, tensor, dims, count);
  const Value updated =
      text.select(is_written, spread(text, ordered, tensor, dims, count), text.reshape(array, {count}));
  return text.reshape(updated, array.shape());
}

}  // namespace runner::xla
