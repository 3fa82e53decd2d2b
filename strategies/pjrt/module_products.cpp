// The operations of a program that sum over elements, that move rows, and that exchange values between replicas.
#include "strategies/pjrt/module_text.hpp"
#include "strategies/pjrt/module_words.hpp"

namespace runner::pjrt {

/// What a reduction begins with.
Value ModuleText::neutral(Reduction kind, ElementType element) {
  const Type type{element, {}};
  const bool maximum = kind == Reduction::maximum;
  if (kind == Reduction::sum) return splat(0, type);
  if (element == ElementType::boolean) return splat(maximum ? 0 : 1, type);
  if (is_float(element)) return splat(maximum ? -INFINITY : INFINITY, type);
  return element == ElementType::int32 ? whole(maximum ? INT32_MIN : INT32_MAX, type)
                                       : whole(maximum ? INT64_MIN : INT64_MAX, type);
}

Value ModuleText::reduce(Reduction kind, const Value& a, const Shape& dims) {
  if (dims.empty()) return a;
  const char* combiner = kind == Reduction::sum ? "add" : kind == Reduction::maximum ? "maximum" : "minimum";
  const Value start = neutral(kind, a.type.element);
  Type type{a.type.element, {}};
  for (const int64_t dim : all_but(std::ssize(a.shape()), dims))
    type.shape.push_back(a.shape()[static_cast<size_t>(dim)]);
  return operation(fmt::format("stablehlo.reduce({} init: {}) applies stablehlo.{} across dimensions = {}", text_of(a),
                               text_of(start), combiner, list_of(dims)),
                   {a, start}, type);
}

Value ModuleText::product(const Value& a, const Value& b, const ProductDims& dims, std::optional<ElementType> element) {
  RUNNER_CHECK(a.type.element == b.type.element, "product of {} and {}", text_of(a.type), text_of(b.type));
  Type type{element.value_or(a.type.element), {}};
  const auto append = [&](const Value& value, const Shape& which) {
    for (const int64_t dim : which) type.shape.push_back(value.shape().at(static_cast<size_t>(dim)));
  };
  const auto both = [](const Shape& first, const Shape& second) {
    Shape all = first;
    all.insert(all.end(), second.begin(), second.end());
    return all;
  };
  append(a, dims.left_common);
  append(a, all_but(std::ssize(a.shape()), both(dims.left_common, dims.left_summed)));
  append(b, all_but(std::ssize(b.shape()), both(dims.right_common, dims.right_summed)));
  std::string text = fmt::format("stablehlo.dot_general {}, {}", text_of(a), text_of(b));
  if (!dims.left_common.empty())
    text += fmt::format(", batching_dims = {} x {}", list_of(dims.left_common), list_of(dims.right_common));
  text += fmt::format(", contracting_dims = {} x {}", list_of(dims.left_summed), list_of(dims.right_summed));
  // Otherwise devices with faster products of fewer bits would use them.
  if (a.type.element == ElementType::float32) text += ", precision = [HIGHEST, HIGHEST]";
  return operation(text, {a, b}, type);
}

Value ModuleText::rows(const Value& table, const Value& ids) {
  const auto ids_rank = std::ssize(ids.shape()), row_rank = std::ssize(table.shape()) - 1;
  Shape sizes = table.shape(), shape = ids.shape();
  sizes[0] = 1;
  shape.insert(shape.end(), table.shape().begin() + 1, table.shape().end());
  const Type type{table.type.element, shape};
  const Value made = result(type);
  body_ += fmt::format(
      "    {} = \"stablehlo.gather\"({}, {}) <{{dimension_numbers = #stablehlo.gather<offset_dims = {}, "
      "collapsed_slice_dims = [0], "
      "start_index_map = [0], index_vector_dim = {}>, slice_sizes = {}}}> : {}\n",
      text_of(made), text_of(table), text_of(ids), list_of(counted(ids_rank, row_rank)), ids_rank, array_of(sizes),
      signature({table, ids}, type));
  return made;
}

Value ModuleText::scattered(const Value& table, const Value& ids, const Value& values, const char* combiner) {
  const auto ids_rank = std::ssize(ids.shape()), row_rank = std::ssize(table.shape()) - 1;
  return combining(
      "scatter", fmt::format("{}, {}, {}", text_of(table), text_of(ids), text_of(values)), combiner,
      fmt::format(
          "{{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = {}, inserted_window_dims = [0], "
          "scatter_dims_to_operand_dims = [0], index_vector_dim = {}>}}",
          list_of(counted(ids_rank, row_rank)), ids_rank),
      {table, ids, values}, table.type);
}

Value ModuleText::add_rows(const Type& table, const Value& ids, const Value& values) {
  return scattered(splat(0, table), ids, values, "add");
}

Value ModuleText::put_rows(const Value& table, const Value& ids, const Value& values) {
  return scattered(table, ids, values, nullptr);
}

std::pair<Value, Value> ModuleText::largest(const Value& a, int64_t count) {
  Type type = a.type;
  RUNNER_CHECK(!type.shape.empty() && count <= type.shape.back(), "the largest {} of {}", count, text_of(a.type));
  type.shape.back() = count;
  const Type places{ElementType::int32, type.shape};
  const int64_t id = next_++;
  body_ += fmt::format("    %{}:2 = \"chlo.top_k\"({}) <{{k = {} : i64}}> : ({}) -> ({}, {})\n", id, text_of(a), count,
                       text_of(a.type), text_of(type), text_of(places));
  return {{.id = id, .part = 0, .type = type}, {.id = id, .part = 1, .type = places}};
}

namespace {

/// The size of a spatial dimension of a convolution's result.
int64_t convolved_size(int64_t input, int64_t kernel, const ConvolutionForm& form, size_t dim) {
  const auto spread = [](int64_t size, int64_t dilation) { return size == 0 ? 0 : (size - 1) * dilation + 1; };
  const int64_t padded = spread(input, form.input_dilation[dim]) + form.before[dim] + form.after[dim];
  const int64_t window = spread(kernel, form.kernel_dilation[dim]);
  return padded < window ? 0 : (padded - window) / form.stride[dim] + 1;
}

}  // namespace

Value ModuleText::convolution(const Value& input, const Value& kernel, const ConvolutionForm& form) {
  const size_t spatial = form.stride.size();
  RUNNER_CHECK(input.type.element == kernel.type.element && input.shape().size() == spatial + 2 &&
                   kernel.shape().size() == spatial + 2 && input.shape()[1] == kernel.shape()[1] * form.groups,
               "convolution of {} with {}", text_of(input.type), text_of(kernel.type));
  Type type{input.type.element, {input.shape()[0] / form.batch_groups, kernel.shape()[0]}};
  std::vector<std::string> dims, padding, reversed;
  for (size_t d = 0; d < spatial; ++d) {
    type.shape.push_back(convolved_size(input.shape()[d + 2], kernel.shape()[d + 2], form, d));
    dims.push_back(std::to_string(d));
    padding.push_back(list_of({form.before[d], form.after[d]}));
    reversed.push_back(form.flips ? "true" : "false");
  }
  return operation(
      fmt::format(
          "stablehlo.convolution({}, {}) dim_numbers = [b, f, {}]x[o, i, {}]->[b, f, {}], window = {{stride = {}, "
          "pad = [{}], lhs_dilate = {}, rhs_dilate = {}, reverse = [{}]}} {{feature_group_count = {} : i64, "
          "batch_group_count = {} : i64}}",
          text_of(input), text_of(kernel), fmt::join(dims, ", "), fmt::join(dims, ", "), fmt::join(dims, ", "),
          list_of(form.stride), fmt::join(padding, ", "), list_of(form.input_dilation), list_of(form.kernel_dilation),
          fmt::join(reversed, ", "), form.groups, form.batch_groups),
      {input, kernel}, type);
}

std::vector<Value> ModuleText::barrier(const std::vector<Value>& values) {
  if (values.empty()) return {};
  std::vector<Value> made;
  std::vector<std::string> names, types;
  for (const auto& value : values) {
    made.push_back({.id = next_, .type = value.type});
    names.push_back(text_of(value));
    types.push_back(text_of(value.type));
  }
  const int64_t id = next_++;
  for (size_t i = 0; i < made.size(); ++i) made[i].part = values.size() == 1 ? -1 : static_cast<int64_t>(i);
  body_ += fmt::format("    %{}{} = stablehlo.optimization_barrier {} : {}\n", id,
                       values.size() == 1 ? "" : fmt::format(":{}", values.size()), fmt::join(names, ", "),
                       fmt::join(types, ", "));
  return made;
}

Value ModuleText::all_reduce(const Value& a) {
  if (replicas_ == 1) return a;
  return combining("all_reduce", text_of(a), "add", "{" + groups() + "}", {a}, a.type);
}

Value ModuleText::all_gather(const Value& a, int64_t dim) {
  if (replicas_ == 1) return a;
  Type type = a.type;
  type.shape.at(static_cast<size_t>(dim)) *= replicas_;
  return operation(
      fmt::format("\"stablehlo.all_gather\"({}) {{all_gather_dim = {} : i64, {}}}", text_of(a), dim, groups()), {a},
      type);
}

Value ModuleText::reduce_scatter(const Value& a, int64_t dim) {
  if (replicas_ == 1) return a;
  Type type = a.type;
  auto& size = type.shape.at(static_cast<size_t>(dim));
  RUNNER_CHECK(size % replicas_ == 0, "reduce-scatter of {} among {}", text_of(a.type), replicas_);
  size /= replicas_;
  return combining("reduce_scatter", text_of(a), "add",
                   fmt::format("{{scatter_dimension = {} : i64, {}}}", dim, groups()), {a}, type);
}

}  // namespace runner::pjrt
