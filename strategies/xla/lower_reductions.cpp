// Matrix products, sums, means, extremes and norms over dimensions, positions of extremes, and softmax.
#include <limits>

#include "runner/base/error.hpp"
#include "strategies/xla/lowering.hpp"
#include "strategies/xla/lowering_tools.hpp"

namespace runner::xla {

namespace {

/// The product of matrices, or of each pair of them, or of a matrix and a vector, in the type in which LibTorch sums.
Value matrix_product(ModuleText& text, const Value& a, const Value& b) {
  const bool batched = a.shape().size() == 3;
  const int64_t first = batched ? 1 : 0;
  pjrt::ProductDims dims{.left_summed = {first + 1}, .right_summed = {first}};
  if (batched) dims.left_common = dims.right_common = {0};
  return text.product(a, b, dims, wide(a.type.element));
}

void mm(Call& call) { call.give(matrix_product(call.text, call.value("self"), call.value("mat2"))); }

void mv(Call& call) { call.give(matrix_product(call.text, call.value("self"), call.value("vec"))); }

void dot(Call& call) {
  const auto a = call.value("self"), b = call.value("tensor");
  const auto product = call.text.product(a, b, {.left_summed = {0}, .right_summed = {0}}, wide(a.type.element));
  call.give(call.text.convert(product, a.type.element));
}

/// beta * self + alpha * product.
void plus(Call& call, const Value& product) {
  auto& text = call.text;
  const Type type = wide(call.result_type());
  const double alpha = call.number_or("alpha", 1), beta = call.number_or("beta", 1);
  Value sum = product;
  if (alpha != 1) sum = text.multiply(sum, alpha);
  if (beta != 0) {
    const auto addend = call.value("self", type);
    sum = text.add(sum, beta == 1 ? addend : text.multiply(addend, beta));
  }
  call.give(sum);
}

void addmm(Call& call) { plus(call, matrix_product(call.text, call.value("mat1"), call.value("mat2"))); }
void baddbmm(Call& call) { plus(call, matrix_product(call.text, call.value("batch1"), call.value("batch2"))); }
void addmv(Call& call) { plus(call, matrix_product(call.text, call.value("mat"), call.value("vec"))); }

/// The argument `dim`; all dimensions if the operator has none.
Shape reduced_dims(const Call& call, int64_t rank) {
  return call.has("dim") ? call.dims("dim", rank) : counted_dims(0, rank);
}

/// A reduction in the shape of the result.
void give_reduced(Call& call, const Value& reduced) { call.give(call.text.reshape(reduced, call.result_type().shape)); }

Value reduced(Call& call, Reduction kind, const Value& a) {
  return call.text.reduce(kind, a, reduced_dims(call, std::ssize(a.shape())));
}

/// The operand in the type in which LibTorch sums.
Value operand(Call& call) {
  const auto a = call.value("self");
  return call.text.convert(a, wide(call.result_type().element));
}

void sum(Call& call) { give_reduced(call, reduced(call, Reduction::sum, operand(call))); }

void mean(Call& call) {
  const auto a = operand(call), sum = reduced(call, Reduction::sum, a);
  const double share = static_cast<double>(call.result_type().numel()) / static_cast<double>(a.type.numel());
  give_reduced(call, call.text.multiply(sum, share));
}

/// The largest or smallest element. It is not a number if any element is not: XLA's reductions may skip those.
Value extreme_value(ModuleText& text, Reduction kind, const Value& a, const Shape& dims) {
  const auto value = text.reduce(kind, a, dims);
  if (!is_float(a)) return value;
  const auto unknown = text.reduce(Reduction::maximum, not_numbers(text, a), dims);
  return text.select(unknown, text.splat(std::numeric_limits<double>::quiet_NaN(), value.type), value);
}

template <Reduction kind>
void extreme(Call& call) {
  const auto a = call.value("self");
  give_reduced(call, extreme_value(call.text, kind, a, reduced_dims(call, std::ssize(a.shape()))));
}

template <Reduction kind>
void extreme_of_all(Call& call) {
  const auto a = call.value("self");
  call.give(extreme_value(call.text, kind, a, counted_dims(0, std::ssize(a.shape()))));
}

/// How many elements are true, or are not.
Value count(Call& call, bool which) {
  auto& text = call.text;
  auto a = truth(text, call.value("self"));
  if (!which) a = text.unary(Unary::not_, a);
  return reduced(call, Reduction::sum, text.convert(a, ElementType::int64));
}

void all(Call& call) { give_reduced(call, call.text.unary(Unary::not_, truth(call.text, count(call, false)))); }
void any(Call& call) { give_reduced(call, truth(call.text, count(call, true))); }

void vector_norm(Call& call) {
  auto& text = call.text;
  if (call.number("ord") != 2) throw run_error("a norm of order {} cannot be compiled", call.number("ord"));
  const auto a = operand(call);
  give_reduced(call, text.unary(Unary::sqrt, reduced(call, Reduction::sum, text.multiply(a, a))));
}

void cumulative_sum(Call& call) {
  auto& text = call.text;
  auto a = operand(call);
  if (a.shape().empty()) return call.give(a);
  const int64_t dim = call.dim("dim", std::ssize(a.shape())), size = a.shape()[static_cast<size_t>(dim)];
  for (int64_t shift = 1; shift < size; shift *= 2)  // after each turn, sums of up to 2 * shift elements
    a = text.add(a, text.pad(text.slice(a, dim, 0, size - shift), dim, shift, 0, 0));
  call.give(a);
}

// ---- positions of extremes

struct Extreme {
  Value value, place;  ///< without the dimension; the place is int64
};

/// The largest or smallest element along a dimension, and the first place that has it. An element that is not a number is the extreme.
Extreme extreme_along(ModuleText& text, const Value& a, Reduction kind, int64_t dim) {
  const Type places{ElementType::int64, a.shape()};
  const auto value = extreme_value(text, kind, a, {dim});
  auto hits = text.compare(Comparison::equal, a, repeated(text, value, a.shape(), {dim}));
  if (is_float(a)) hits = text.binary(Binary::or_, hits, not_numbers(text, a));
  const auto none = text.whole(std::numeric_limits<int64_t>::max(), places);
  return {value, text.reduce(Reduction::minimum, text.select(hits, text.iota(places, dim), none), {dim})};
}

template <Reduction kind>
void extreme_place(Call& call) {
  auto a = call.value("self");
  if (!call.has("dim") || a.shape().empty()) a = call.text.reshape(a, {a.type.numel()});
  const int64_t dim = call.has("dim") ? call.dim("dim", std::ssize(a.shape())) : 0;
  give_reduced(call, extreme_along(call.text, a, kind, dim).place);
}

/// Values and places.
template <Reduction kind>
void extreme_of_dim(Call& call) {
  auto a = call.value("self");
  if (a.shape().empty()) a = call.text.reshape(a, {1});
  const auto found = extreme_along(call.text, a, kind, call.dim("dim", std::ssize(a.shape())));
  call.give(0, call.text.reshape(found.value, call.result_type(0).shape));
  call.give(1, call.text.reshape(found.place, call.result_type(1).shape));
}

void largest(Call& call) {
  auto& text = call.text;
  auto a = call.value("self");
  if (a.shape().empty()) a = text.reshape(a, {1});
  const int64_t rank = std::ssize(a.shape()), dim = call.dim("dim", rank);
  Shape order = counted_dims(0, rank);  // the dimension is the last one
  std::swap(order[static_cast<size_t>(dim)], order.back());
  const bool smallest = !call.boolean("largest");
  a = text.transpose(a, order);
  const auto [values, places] = text.largest(smallest ? text.unary(Unary::negate, a) : a, call.integer("k"));
  const auto give = [&](size_t index, const Value& value) {
    call.give(index, text.reshape(text.transpose(value, order), call.result_type(index).shape));
  };
  give(0, smallest ? text.unary(Unary::negate, values) : values);
  give(1, places);
}

// ---- softmax

Value largest_along(ModuleText& text, const Value& a, int64_t dim) {
  return repeated(text, text.reduce(Reduction::maximum, a, {dim}), a.shape(), {dim});
}
Value sum_along(ModuleText& text, const Value& a, int64_t dim) {
  return repeated(text, text.reduce(Reduction::sum, a, {dim}), a.shape(), {dim});
}

/// The operand and the dimension of a softmax. A number is a row of one element.
struct SoftmaxRows {
  Value a;
  int64_t dim;

  SoftmaxRows(Call& call, const Value& self, ElementType element) : a(call.text.convert(self, wide(element))) {
    dim = call.dim("dim", std::ssize(a.shape()));
    if (a.shape().empty()) a = call.text.reshape(a, {1});
  }
};

void softmax(Call& call) {
  auto& text = call.text;
  const auto [a, dim] = SoftmaxRows(call, call.value("self"), call.result_type().element);
  const auto raised = text.unary(Unary::exponential, text.subtract(a, largest_along(text, a, dim)));
  give_reduced(call, text.divide(raised, sum_along(text, raised, dim)));
}

/// Rows without a finite element are zeros.
void safe_softmax(Call& call) {
  auto& text = call.text;
  const auto self = call.value("self");
  const auto element =
      element_type(call.has("dtype") ? call.argument("dtype").toScalarType() : call.tensor("self").scalar_type());
  const auto [a, dim] = SoftmaxRows(call, self, element);
  const auto lowest = text.splat(-std::numeric_limits<double>::infinity(), a.type);
  const auto largest = largest_along(text, a, dim);
  const auto hidden = text.compare(Comparison::equal, largest, lowest);
  const auto raised =
      text.unary(Unary::exponential, text.subtract(a, text.select(hidden, text.splat(0, a.type), largest)));
  const auto sum = text.select(hidden, text.splat(1, a.type), sum_along(text, raised, dim));
  call.give(text.convert(text.reshape(text.divide(raised, sum), self.shape()), element));
}

void log_softmax(Call& call) {
  auto& text = call.text;
  const auto [a, dim] = SoftmaxRows(call, call.value("self"), call.result_type().element);
  const auto centred = text.subtract(a, largest_along(text, a, dim));
  const auto sum = text.reduce(Reduction::sum, text.unary(Unary::exponential, centred), {dim});
  give_reduced(call, text.subtract(centred, repeated(text, text.unary(Unary::log, sum), a.shape(), {dim})));
}

void softmax_backward(Call& call) {
  auto& text = call.text;
  const auto element = call.result_type().element;
  const auto [gradient, dim] = SoftmaxRows(call, call.value("grad_output"), element);
  const auto output = SoftmaxRows(call, call.value("output"), element).a;
  const auto product = text.multiply(gradient, output);
  give_reduced(call, text.subtract(product, text.multiply(output, sum_along(text, product, dim))));
}

void log_softmax_backward(Call& call) {
  auto& text = call.text;
  const auto element = call.result_type().element;
  const auto [gradient, dim] = SoftmaxRows(call, call.value("grad_output"), element);
  const auto output = SoftmaxRows(call, call.value("output"), element).a;
  const auto share = text.unary(Unary::exponential, output);
  give_reduced(call, text.subtract(gradient, text.multiply(share, sum_along(text, gradient, dim))));
}

}  // namespace

void add_reductions(Lowerings& table) {
  table.insert({{"aten::mm", {mm}},
                {"aten::bmm", {mm}},
                {"aten::mv", {mv}},
                {"aten::dot", {dot, true}},
                {"aten::addmm", {addmm}},
                {"aten::baddbmm", {baddbmm}},
                {"aten::addmv", {addmv}},
                {"aten::sum", {sum}},
                {"aten::mean", {mean}},
                {"aten::amax", {extreme<Reduction::maximum>}},
                {"aten::amin", {extreme<Reduction::minimum>}},
                {"aten::max.", {extreme_of_all<Reduction::maximum>, true}},
                {"aten::min.", {extreme_of_all<Reduction::minimum>, true}},
                {"aten::max.dim", {extreme_of_dim<Reduction::maximum>}},
                {"aten::min.dim", {extreme_of_dim<Reduction::minimum>}},
                {"aten::argmax", {extreme_place<Reduction::maximum>}},
                {"aten::argmin", {extreme_place<Reduction::minimum>}},
                {"aten::topk", {largest}},
                {"aten::all", {all}},
                {"aten::any", {any}},
                {"aten::cumsum", {cumulative_sum}},
                {"aten::linalg_vector_norm", {vector_norm}},
                {"aten::_softmax", {softmax}},
                {"aten::_safe_softmax", {safe_softmax, true}},
                {"aten::_log_softmax", {log_softmax}},
                {"aten::_softmax_backward_data", {softmax_backward}},
                {"aten::_log_softmax_backward_data", {log_softmax_backward}}});
}

}  // namespace runner::xla
