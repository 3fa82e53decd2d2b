// Copies and new tensors, also from parts of others: joined, padded, repeated, reversed, and triangles.
#include "strategies/xla/lowering.hpp"
#include "strategies/xla/lowering_tools.hpp"

namespace runner::xla {

namespace {

Value concatenated(Call& call, const std::vector<Value>& parts, int64_t dim) {
  if (parts.empty()) return call.text.splat(0, call.result_type());
  return parts.size() == 1 ? parts[0] : call.text.concatenate(parts, dim);
}

void cat(Call& call) {
  auto& text = call.text;
  const Type type = call.result_type();
  std::vector<Value> parts;
  for (const auto& tensor : call.argument("tensors").toTensorVector())
    if (tensor.dim() > 1 || tensor.numel() > 0)  // an empty list stands for nothing
      parts.push_back(text.convert(call.value_of(tensor), type.element));
  call.give(concatenated(call, parts, call.dim("dim", std::ssize(type.shape))));
}

void stack(Call& call) {
  auto& text = call.text;
  const Type type = call.result_type();
  const int64_t dim = call.dim("dim", std::ssize(type.shape));
  Shape one = type.shape;
  one[static_cast<size_t>(dim)] = 1;
  std::vector<Value> parts;
  for (const auto& tensor : call.argument("tensors").toTensorVector())
    parts.push_back(text.reshape(text.convert(call.value_of(tensor), type.element), one));
  call.give(concatenated(call, parts, dim));
}

/// Elements for which column - row has a relation to the argument `diagonal`.
template <Comparison keeps>
void triangle(Call& call) {
  auto& text = call.text;
  const auto a = call.value("self");
  const Type places{ElementType::int64, a.shape()};
  const auto rank = std::ssize(a.shape());
  const auto distance = text.subtract(text.iota(places, rank - 1), text.iota(places, rank - 2));
  const auto kept = text.compare(keeps, distance, text.whole(call.integer("diagonal"), places));
  call.give(text.select(kept, a, text.splat(0, a.type)));
}

/// A negative number of elements is left out.
void constant_pad(Call& call) {
  auto& text = call.text;
  auto a = call.value("self");
  const auto pad = call.argument("pad").toIntVector();
  const auto fill = call.value("value", {a.type.element, {}});
  for (size_t i = 0; i + 1 < pad.size(); i += 2) {
    const int64_t dim = std::ssize(a.shape()) - 1 - static_cast<int64_t>(i / 2);
    const int64_t before = pad[i], after = pad[i + 1];
    if (before < 0 || after < 0)
      a = text.slice(a, dim, std::max<int64_t>(0, -before),
                     a.shape()[static_cast<size_t>(dim)] + std::min<int64_t>(0, after));
    const auto ends = [&](int64_t count) {
      Shape shape = a.shape();
      shape[static_cast<size_t>(dim)] = count;
      return text.expand(fill, shape);
    };
    std::vector<Value> parts;
    if (before > 0) parts.push_back(ends(before));
    parts.push_back(a);
    if (after > 0) parts.push_back(ends(after));
    a = concatenated(call, parts, dim);
  }
  call.give(a);
}

void repeat(Call& call) {
  auto& text = call.text;
  auto a = call.value("self");
  const auto repeats = call.argument("repeats").toIntVector();
  if (call.result_type().numel() == 0) return call.give(text.splat(0, call.result_type()));
  Shape shape(repeats.size() - a.shape().size(), 1);
  shape.insert(shape.end(), a.shape().begin(), a.shape().end());
  a = text.reshape(a, shape);
  for (size_t d = 0; d < repeats.size(); ++d)
    if (repeats[d] != 1)
      a = text.concatenate(std::vector<Value>(static_cast<size_t>(repeats[d]), a), static_cast<int64_t>(d));
  call.give(a);
}

void flip(Call& call) {
  const auto a = call.value("self");
  call.give(call.text.reverse(a, call.dims("dims", std::ssize(a.shape()))));
}

void copy(Call& call) { call.give(call.value("src", call.result_type())); }
void same(Call& call) { call.give(call.value("self")); }
void no_values(Call&) {}

void fill(Call& call) { call.give(call.value("value", call.result_type())); }

template <int number>
void filled(Call& call) {
  call.give(call.text.splat(number, call.result_type()));
}

void full(Call& call) { call.give(call.value("fill_value", call.result_type())); }
void scalar_tensor(Call& call) { call.give(call.value("s", call.result_type())); }

/// Integers are counted as such, and other numbers in float64, as on CPUs.
void arange(Call& call) {
  auto& text = call.text;
  const Type type = call.result_type();
  const auto element = is_float(type.element) ? ElementType::float64 : ElementType::int64;
  const Type scalar{element, {}}, counted{element, type.shape};
  const auto number = [&](const char* name, int otherwise) {
    const auto value = call.has(name) ? call.value(name, scalar) : text.splat(otherwise, scalar);
    return text.expand(value, type.shape);
  };
  call.give(text.add(text.multiply(text.iota(counted, 0), number("step", 1)), number("start", 0)));
}

}  // namespace

void add_new_tensors(Lowerings& table) {
  table.insert({{"aten::cat", {cat}},
                {"aten::stack", {stack}},
                {"aten::tril", {triangle<Comparison::less_equal>}},
                {"aten::triu", {triangle<Comparison::greater_equal>}},
                {"aten::constant_pad_nd", {constant_pad}},
                {"aten::repeat", {repeat}},
                {"aten::flip", {flip, true}},
                {"aten::copy", {copy}},
                {"aten::_to_copy", {same}},
                {"aten::clone", {same}},
                {"aten::empty", {no_values}},
                {"aten::empty_strided", {no_values}},
                {"aten::empty_like", {no_values}},
                {"aten::new_empty", {no_values}},
                {"aten::new_empty_strided", {no_values}},
                {"aten::fill", {fill}},
                {"aten::zero", {filled<0>}},
                {"aten::zeros", {filled<0>}},
                {"aten::zeros_like", {filled<0>}},
                {"aten::new_zeros", {filled<0>}},
                {"aten::ones", {filled<1>}},
                {"aten::ones_like", {filled<1>}},
                {"aten::new_ones", {filled<1>}},
                {"aten::full", {full}},
                {"aten::full_like", {full}},
                {"aten::new_full", {full}},
                {"aten::scalar_tensor", {scalar_tensor}},
                {"aten::arange", {arange}}});
}

}  // namespace runner::xla
