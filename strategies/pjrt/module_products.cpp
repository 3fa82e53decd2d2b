// The operations of a program that sum over elements: reductions, products and convolutions.
#include "strategies/pjrt/module_text.hpp"
#include "strategies/pjrt/module_words.hpp"

namespace runner::pjrt {

/// The value that a reduction begins with.
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
          "batch_group_count = {} : i64{}}}",
          text_of(input), text_of(kernel), fmt::join(dims, ", "), fmt::join(dims, ", "), fmt::join(dims, ", "),
          list_of(form.stride), fmt::join(padding, ", "), list_of(form.input_dilation), list_of(form.kernel_dilation),
          fmt::join(reversed, ", "), form.groups, form.batch_groups,
          input.type.element == ElementType::float32
              ? ", precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]"
              : ""),
      {input, kernel}, type);
}

}  // namespace runner::pjrt
