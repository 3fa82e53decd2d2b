// Convolutions and pooling.
#include <limits>

#include "runner/base/error.hpp"
#include "strategies/xla/lowering.hpp"
#include "strategies/xla/lowering_tools.hpp"

namespace runner::xla {

namespace {

using pjrt::ConvolutionForm;

// ---- convolutions: input [N, C, spatial...], weight [outputs, C / groups, spatial...]

/// An argument with one number for each spatial dimension. One number stands for all; none stands for `otherwise`.
Shape spatial_numbers(const Call& call, const char* name, size_t count, const Shape& otherwise = {}) {
  const auto numbers = call.argument(name).toIntVector();
  if (numbers.empty()) return otherwise;
  return numbers.size() == 1 ? Shape(count, numbers[0]) : numbers;
}

struct Windows {
  Shape stride, padding, dilation;
  int64_t groups;
  size_t spatial;

  explicit Windows(Call& call)
      : groups(call.integer("groups")), spatial(static_cast<size_t>(call.tensor("input").dim() - 2)) {
    if (call.boolean("transposed")) throw run_error("a transposed convolution cannot be compiled");
    stride = spatial_numbers(call, "stride", spatial);
    padding = spatial_numbers(call, "padding", spatial);
    dilation = spatial_numbers(call, "dilation", spatial);
  }
};

/// Operands in the type in which LibTorch sums.
Value wide_operand(Call& call, const char* name) { return widened(call.text, call.value(name)); }

/// A value of channels, [C], in a shape [N, C, ...].
Value by_channel(ModuleText& text, const Value& a, const Shape& shape) { return text.broadcast(a, shape, {1}); }

void convolution(Call& call) {
  auto& text = call.text;
  const Windows windows(call);
  const Shape ones(windows.spatial, 1);
  auto result = text.convolution(wide_operand(call, "input"), wide_operand(call, "weight"),
                                 {.stride = windows.stride,
                                  .before = windows.padding,
                                  .after = windows.padding,
                                  .input_dilation = ones,
                                  .kernel_dilation = windows.dilation,
                                  .groups = windows.groups});
  if (call.has("bias")) result = text.add(result, by_channel(text, wide_operand(call, "bias"), result.shape()));
  call.give(text.convert(result, element_type(call.tensor("input").scalar_type())));
}

/// [groups * a, b, ...] -> [groups * b, a, ...]: inputs and outputs of each group change places.
Value with_swapped_channels(ModuleText& text, const Value& weight, int64_t groups) {
  const Shape& shape = weight.shape();
  Shape divided{groups, shape[0] / groups}, order = counted_dims(0, std::ssize(shape) + 1);
  divided.insert(divided.end(), shape.begin() + 1, shape.end());
  std::swap(order[1], order[2]);
  Shape joined{groups * shape[1], shape[0] / groups};
  joined.insert(joined.end(), shape.begin() + 2, shape.end());
  return text.reshape(text.transpose(text.reshape(weight, divided), order), joined);
}

/// The gradient of the input: the gradient, spread by the stride, under the reversed weight.
Value input_gradient(ModuleText& text, const Windows& windows, const Value& gradient, const Value& weight,
                     const Shape& input) {
  ConvolutionForm form{.stride = Shape(windows.spatial, 1),
                       .before = {},
                       .after = {},
                       .input_dilation = windows.stride,
                       .kernel_dilation = windows.dilation,
                       .flips = true,
                       .groups = windows.groups};
  for (size_t d = 0; d < windows.spatial; ++d) {
    const int64_t reach = (weight.shape()[d + 2] - 1) * windows.dilation[d];
    const int64_t spread = (gradient.shape()[d + 2] - 1) * windows.stride[d] + 1;
    form.before.push_back(reach - windows.padding[d]);
    form.after.push_back(input[d + 2] + windows.padding[d] - spread);
  }
  return text.convolution(gradient, with_swapped_channels(text, weight, windows.groups), form);
}

/// The gradient of the weight: rows are summed, so they take the place of channels.
Value weight_gradient(ModuleText& text, const Windows& windows, const Value& gradient, const Value& input,
                      const Shape& weight) {
  ConvolutionForm form{.stride = windows.dilation,
                       .before = windows.padding,
                       .after = {},
                       .input_dilation = Shape(windows.spatial, 1),
                       .kernel_dilation = windows.stride,
                       .batch_groups = windows.groups};
  for (size_t d = 0; d < windows.spatial; ++d) {
    const int64_t reach = (weight[d + 2] - 1) * windows.dilation[d];
    const int64_t spread = (gradient.shape()[d + 2] - 1) * windows.stride[d] + 1;
    form.after.push_back(reach + spread - input.shape()[d + 2] - windows.padding[d]);
  }
  Shape swapped = counted_dims(0, std::ssize(weight));
  std::swap(swapped[0], swapped[1]);
  const auto result = text.convolution(text.transpose(input, swapped), text.transpose(gradient, swapped), form);
  return text.transpose(result, swapped);
}

void convolution_backward(Call& call) {
  auto& text = call.text;
  const Windows windows(call);
  const auto gradient = wide_operand(call, "grad_output"), input = wide_operand(call, "input"),
             weight = wide_operand(call, "weight");
  const auto wanted = call.argument("output_mask").toBoolList();
  const auto element = element_type(call.tensor("input").scalar_type());
  if (wanted[0]) call.give(0, text.convert(input_gradient(text, windows, gradient, weight, input.shape()), element));
  if (wanted[1]) call.give(1, text.convert(weight_gradient(text, windows, gradient, input, weight.shape()), element));
  if (!wanted[2]) return;
  Shape summed = counted_dims(0, std::ssize(gradient.shape()));
  summed.erase(summed.begin() + 1);
  call.give(2, text.convert(text.reduce(Reduction::sum, gradient, summed), element));
}

// ---- pooling: [..., H, W]

/// The windows of max_pool2d.
struct Pool {
  Shape kernel, stride, padding, dilation, input, output;  ///< sizes of the two dimensions

  Pool(Call& call, const Shape& input_shape, const Shape& output_shape)
      : kernel(spatial_numbers(call, "kernel_size", 2)),
        stride(spatial_numbers(call, "stride", 2, kernel)),
        padding(spatial_numbers(call, "padding", 2)),
        dilation(spatial_numbers(call, "dilation", 2)),
        input(input_shape.end() - 2, input_shape.end()),
        output(output_shape.end() - 2, output_shape.end()) {}

  /// For each window, its element (i, j). `a` [planes, H, W]; what is outside of the input is `fill`.
  Value elements(ModuleText& text, Value a, int64_t i, int64_t j, double fill) const {
    const Shape offsets{i, j};
    for (size_t d = 0; d < 2; ++d) {
      const auto dim = static_cast<int64_t>(d) + 1;
      const int64_t reach = (output[d] - 1) * stride[d] + (kernel[d] - 1) * dilation[d] + 1;
      a = text.pad(a, dim, padding[d], std::max<int64_t>(0, reach - input[d] - padding[d]), fill);
      const int64_t begin = offsets[d] * dilation[d];
      a = text.slice(a, dim, begin, begin + (output[d] - 1) * stride[d] + 1, stride[d]);
    }
    return a;
  }
};

int64_t planes_of(const Shape& shape) { return Type{ElementType::float32, {shape.begin(), shape.end() - 2}}.numel(); }

/// The largest element of each window, and its place in its plane. The first of equal ones counts, and what is not a number is largest.
void max_pool(Call& call) {
  auto& text = call.text;
  const auto self = call.value("self");
  const Pool pool(call, self.shape(), call.result_type(0).shape);
  const Type planes{self.type.element, {planes_of(self.shape()), pool.input[0], pool.input[1]}};
  const auto a = text.reshape(self, planes.shape);
  const Type plane{ElementType::int64, {1, pool.input[0], pool.input[1]}};
  const auto place =
      text.add(text.multiply(text.iota(plane, 1), static_cast<double>(pool.input[1])), text.iota(plane, 2));
  std::optional<Value> best, best_place;
  for (int64_t i = 0; i < pool.kernel[0]; ++i)
    for (int64_t j = 0; j < pool.kernel[1]; ++j) {
      const auto value = pool.elements(text, a, i, j, -std::numeric_limits<double>::infinity());
      const auto own = text.expand(pool.elements(text, place, i, j, -1), value.shape());
      if (!best) {
        best = value, best_place = own;
        continue;
      }
      const auto nothing_yet = is_negative(text, *best_place), inside = text.unary(Unary::not_, is_negative(text, own));
      auto takes = text.compare(Comparison::greater, value, *best);
      takes = text.binary(Binary::or_, takes, text.binary(Binary::or_, not_numbers(text, value), nothing_yet));
      takes = text.binary(Binary::and_, takes, inside);
      best = text.select(takes, value, *best);
      best_place = text.select(takes, own, *best_place);
    }
  call.give(0, text.reshape(*best, call.result_type(0).shape));
  call.give(1, text.reshape(*best_place, call.result_type(1).shape));
}

void max_pool_backward(Call& call) {
  auto& text = call.text;
  const Type type = wide(call.result_type());
  const auto given = text.convert(call.value("grad_output"), type.element);
  const int64_t planes = planes_of(type.shape), of_plane = planes == 0 ? 0 : given.type.numel() / planes;
  const auto gradient = text.reshape(given, {planes, of_plane});
  const auto place = text.reshape(call.value("indices"), gradient.shape());
  const double size = static_cast<double>(type.shape.back() * type.shape[type.shape.size() - 2]);
  const auto row = text.add(text.multiply(text.iota(place.type, 0), size), place);
  call.give(text.reshape(text.add_rows({type.element, {type.numel()}}, row, gradient), type.shape));
}

/// Divides the planes into windows of equal size: [..., H, W] -> [..., outputs, H / outputs, outputs, W / outputs].
Shape in_windows(const Shape& input, const Shape& output) {
  Shape shape(input.begin(), input.end() - 2);
  for (size_t d = 0; d < 2; ++d) {
    const int64_t size = input[input.size() - 2 + d], count = output[d];
    if (count == 0 || size % count != 0)
      throw run_error("the mean over windows of different sizes ({} elements as {}) cannot be compiled", size, count);
    shape.insert(shape.end(), {count, size / count});
  }
  return shape;
}

void mean_pool(Call& call) {
  auto& text = call.text;
  const auto self = call.value("self"), a = widened(text, self);
  const auto sizes = call.argument("output_size").toIntVector();
  const Shape windows = in_windows(a.shape(), sizes);
  const auto rank = std::ssize(windows);
  auto mean = text.reduce(Reduction::sum, text.reshape(a, windows), {rank - 3, rank - 1});
  mean = text.multiply(mean, 1 / static_cast<double>(windows.back() * windows[windows.size() - 3]));
  call.give(text.convert(mean, self.type.element));
}

void mean_pool_backward(Call& call) {
  auto& text = call.text;
  const Shape input = call.tensor("self").sizes().vec();
  auto gradient = call.value("grad_output");
  const auto element = gradient.type.element;
  const Shape& output = gradient.shape();
  const Shape windows = in_windows(input, {output.end()[-2], output.end()[-1]});
  const auto rank = std::ssize(windows);
  gradient = text.multiply(widened(text, gradient), 1 / static_cast<double>(windows.back() * windows.end()[-3]));
  call.give(text.convert(text.reshape(repeated(text, gradient, windows, {rank - 3, rank - 1}), input), element));
}

}  // namespace

void add_images(Lowerings& table) {
  table.insert({{"aten::convolution", {convolution, true}},
                {"aten::convolution_backward", {convolution_backward, true}},
                {"aten::max_pool2d_with_indices", {max_pool}},
                {"aten::max_pool2d_with_indices_backward", {max_pool_backward}},
                {"aten::_adaptive_avg_pool2d", {mean_pool, true}},
                {"aten::_adaptive_avg_pool2d_backward", {mean_pool_backward, true}}});
}

}  // namespace runner::xla
