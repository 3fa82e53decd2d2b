// Functions that several lowerings use.
#pragma once
#include <algorithm>

#include "strategies/xla/call.hpp"

namespace runner::xla {

using pjrt::Binary, pjrt::Comparison, pjrt::counted_dims, pjrt::ElementType, pjrt::ModuleText, pjrt::Reduction,
    pjrt::Shape, pjrt::Type, pjrt::Unary, pjrt::Value;

using pjrt::is_float;
inline bool is_float(const Value& a) { return is_float(a.type.element); }

/// The element type in which LibTorch computes: 16-bit numbers are widened to float32.
inline ElementType wide(ElementType type) {
  return type == ElementType::float16 || type == ElementType::bfloat16 ? ElementType::float32 : type;
}
inline Type wide(const Type& type) { return {wide(type.element), type.shape}; }
inline Value widened(ModuleText& text, const Value& a) { return text.convert(a, wide(a.type.element)); }

inline Value truth(ModuleText& text, const Value& a) {
  if (a.type.element == ElementType::boolean) return a;
  return text.compare(Comparison::not_equal, a, text.splat(0, a.type));
}

inline Value is_negative(ModuleText& text, const Value& a) {
  return text.compare(Comparison::less, a, text.splat(0, a.type));
}

/// Where the elements are not numbers.
inline Value not_numbers(ModuleText& text, const Value& a) { return text.compare(Comparison::not_equal, a, a); }

/// The larger or the smaller of two elements, and not a number if one of them is not: XLA may leave that one out.
inline Value extreme_of(ModuleText& text, Binary kind, const Value& a, const Value& b) {
  const auto result = text.binary(kind, a, b);
  if (!is_float(a)) return result;
  return text.select(not_numbers(text, a), a, text.select(not_numbers(text, b), b, result));
}

/// `a` has lost some dimensions of `shape`, by a reduction over `dims`. Repeats it along them.
inline Value repeated(ModuleText& text, const Value& a, const Shape& shape, const Shape& dims) {
  Shape kept;
  for (int64_t d = 0; d < std::ssize(shape); ++d)
    if (std::ranges::find(dims, d) == dims.end()) kept.push_back(d);
  return text.broadcast(a, shape, kept);
}

/// Where the index along `dim` of a new tensor equals `index`, which lacks that dimension.
inline Value one_hot(ModuleText& text, const Value& index, const Shape& shape, int64_t dim) {
  const Type type{index.type.element, shape};
  return text.compare(Comparison::equal, text.iota(type, dim), repeated(text, index, shape, {dim}));
}

/// The order of dimensions that undoes another one.
inline Shape inverse(const Shape& order) {
  Shape back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return back;
}

}  // namespace runner::xla
