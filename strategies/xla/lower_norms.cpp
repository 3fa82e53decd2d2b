// Norms that LibTorch has as one operator.
#include "runner/base/error.hpp"
#include "strategies/xla/lowering.hpp"
#include "strategies/xla/lowering_tools.hpp"

namespace runner::xla {

namespace {

struct Rows {
  Shape shape, normed, others;  ///< shape of the input, its normalized dimensions, and the others
  double count = 1;             ///< elements of a row

  explicit Rows(Call& call) : shape(call.tensor("input").sizes().vec()) {
    const auto sizes = call.argument("normalized_shape").toIntVector();
    for (const int64_t size : sizes) count *= static_cast<double>(size);
    const auto rank = std::ssize(shape), first = rank - std::ssize(sizes);
    normed = counted_dims(first, rank);
    others = counted_dims(0, first);
  }
  Value sum(ModuleText& text, const Value& a) const { return text.reduce(Reduction::sum, a, normed); }
  Value mean(ModuleText& text, const Value& a) const { return text.multiply(sum(text, a), 1 / count); }
  Value along(ModuleText& text, const Value& of_rows) const { return repeated(text, of_rows, shape, normed); }
  /// A weight or a statistic in the shape of the input.
  Value weight(ModuleText& text, const Value& a) const { return repeated(text, a, shape, others); }
};

void layer_norm(Call& call) {
  auto& text = call.text;
  const Rows rows(call);
  const auto x = call.fitted(call.value("input"), wide(type_of(call.tensor("input"))));
  const auto mean = rows.mean(text, x);
  const auto centred = text.subtract(x, rows.along(text, mean));
  const auto variance = rows.mean(text, text.multiply(centred, centred));
  const auto scale = text.unary(Unary::rsqrt, text.add(variance, call.number("eps")));
  auto y = text.multiply(centred, rows.along(text, scale));
  const auto wide_weight = [&](const char* name) {
    return rows.weight(text, text.convert(call.value(name), y.type.element));
  };
  if (call.has("weight")) y = text.multiply(y, wide_weight("weight"));
  if (call.has("bias")) y = text.add(y, wide_weight("bias"));
  Shape statistic = rows.shape;
  for (const int64_t dim : rows.normed) statistic[static_cast<size_t>(dim)] = 1;
  call.give(0, text.convert(y, call.value("input").type.element));
  call.give(1, text.reshape(mean, statistic));
  call.give(2, text.reshape(scale, statistic));
}

void layer_norm_backward(Call& call) {
  auto& text = call.text;
  const Rows rows(call);
  const auto type = wide(type_of(call.tensor("input")));
  const auto x = call.fitted(call.value("input"), type), gradient = call.fitted(call.value("grad_out"), type);
  const auto statistic = [&](const char* name) {
    return call.fitted(text.convert(call.value(name), type.element), type);
  };
  const auto scale = statistic("rstd"), normed = text.multiply(text.subtract(x, statistic("mean")), scale);
  auto scaled = gradient;
  if (call.has("weight"))
    scaled = text.multiply(gradient, rows.weight(text, text.convert(call.value("weight"), type.element)));
  const auto mean = rows.along(text, rows.mean(text, scaled));
  const auto slope = rows.along(text, rows.mean(text, text.multiply(scaled, normed)));
  const auto slope_free = text.subtract(text.subtract(scaled, mean), text.multiply(normed, slope));
  const auto wanted = call.argument("output_mask").toBoolList();
  const auto give = [&](size_t index, const Value& value, const char* like) {
    if (wanted[index]) call.give(index, text.convert(value, element_type(call.tensor(like).scalar_type())));
  };
  give(0, text.multiply(scale, slope_free), "input");
  give(1, text.reduce(Reduction::sum, text.multiply(gradient, normed), rows.others), "weight");
  give(2, text.reduce(Reduction::sum, gradient, rows.others), "bias");
}

// ---- batch norm: [N, C, ...], normalized over all dimensions but the second one

struct Channels {
  Shape shape, others;
  double count = 1;  ///< elements of a channel

  explicit Channels(const Shape& shape) : shape(shape), others(counted_dims(0, std::ssize(shape))) {
    others.erase(others.begin() + 1);
    for (const int64_t dim : others) count *= static_cast<double>(shape[static_cast<size_t>(dim)]);
  }
  Value sum(ModuleText& text, const Value& a) const { return text.reduce(Reduction::sum, a, others); }
  Value mean(ModuleText& text, const Value& a) const { return text.multiply(sum(text, a), 1 / count); }
  /// A number of each channel in the shape of the input.
  Value along(ModuleText& text, const Value& a) const { return text.broadcast(a, shape, {1}); }
};

Value inverse_deviation(ModuleText& text, const Value& variance, double eps) {
  return text.unary(Unary::rsqrt, text.add(variance, eps));
}

/// Running statistics are read in validation. In training there must be none, because the operator changes them.
void batch_norm(Call& call) {
  auto& text = call.text;
  const auto given = call.value("input"), x = widened(text, given);
  const Channels channels(x.shape());
  const auto wide_value = [&](const char* name) { return text.convert(call.value(name), x.type.element); };
  const bool training = call.boolean("training");
  if (training && call.has("running_mean")) throw run_error("running statistics of batch norm cannot be compiled");
  const auto mean = training ? channels.mean(text, x) : wide_value("running_mean");
  const auto centred = text.subtract(x, channels.along(text, mean));
  const auto variance = training ? channels.mean(text, text.multiply(centred, centred)) : wide_value("running_var");
  const auto scale = inverse_deviation(text, variance, call.number("eps"));
  auto y = text.multiply(centred, channels.along(text, scale));
  if (call.has("weight")) y = text.multiply(y, channels.along(text, wide_value("weight")));
  if (call.has("bias")) y = text.add(y, channels.along(text, wide_value("bias")));
  call.give(0, text.convert(y, given.type.element));
  const auto of_statistics =
      call.has("weight") ? element_type(call.tensor("weight").scalar_type()) : given.type.element;
  const auto give_statistic = [&](size_t index, const Value& value) {
    const auto kept = training ? value : text.splat(0, {x.type.element, {0}});
    call.give(index, text.convert(kept, of_statistics));
  };
  give_statistic(1, mean);
  give_statistic(2, scale);
}

void batch_norm_backward(Call& call) {
  auto& text = call.text;
  const auto given = call.value("input"), x = widened(text, given);
  const Channels channels(x.shape());
  const auto wide_value = [&](const char* name) { return text.convert(call.value(name), x.type.element); };
  const bool training = call.boolean("train");
  const auto gradient = wide_value("grad_out");
  const auto mean = wide_value(training ? "save_mean" : "running_mean");
  const auto scale =
      training ? wide_value("save_invstd") : inverse_deviation(text, wide_value("running_var"), call.number("eps"));
  const auto normed = text.multiply(text.subtract(x, channels.along(text, mean)), channels.along(text, scale));
  const auto product = text.multiply(gradient, normed);
  const auto wanted = call.argument("output_mask").toBoolList();
  if (wanted[0]) {
    auto slope = gradient;
    if (training) {
      slope = text.subtract(slope, channels.along(text, channels.mean(text, gradient)));
      slope = text.subtract(slope, text.multiply(normed, channels.along(text, channels.mean(text, product))));
    }
    slope = text.multiply(slope, channels.along(text, scale));
    if (call.has("weight")) slope = text.multiply(slope, channels.along(text, wide_value("weight")));
    call.give(0, text.convert(slope, given.type.element));
  }
  const auto of_weight = call.has("weight") ? element_type(call.tensor("weight").scalar_type()) : x.type.element;
  if (wanted[1]) call.give(1, text.convert(channels.sum(text, product), of_weight));
  if (wanted[2]) call.give(2, text.convert(channels.sum(text, gradient), of_weight));
}

}  // namespace

void add_norms(Lowerings& table) {
  table.insert({{"aten::native_layer_norm", {layer_norm, true}},
                {"aten::native_layer_norm_backward", {layer_norm_backward, true}},
                {"aten::native_batch_norm", {batch_norm, true}},
                {"aten::native_batch_norm_backward", {batch_norm_backward, true}}});
}

}  // namespace runner::xla
