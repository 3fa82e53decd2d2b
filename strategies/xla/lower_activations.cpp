// Activation functions and their derivatives.
#include <cmath>

#include "strategies/xla/lowering.hpp"
#include "strategies/xla/lowering_tools.hpp"

namespace runner::xla {

namespace {

void relu(Call& call) {
  const auto a = call.value("self");
  call.give(call.text.binary(Binary::maximum, a, call.text.splat(0, a.type)));
}

/// An element that is not a number passes its gradient.
void threshold_backward(Call& call) {
  auto& text = call.text;
  const Type type = call.result_type();
  const auto stops = text.compare(Comparison::less_equal, call.value("self", type), call.value("threshold", type));
  call.give(text.select(stops, text.splat(0, type), call.value("grad_output", type)));
}

void silu(Call& call) {
  const auto a = call.value("self", wide(call.result_type()));
  call.give(call.text.multiply(a, call.text.unary(Unary::logistic, a)));
}

void silu_backward(Call& call) {
  auto& text = call.text;
  const Type type = wide(call.result_type());
  const auto a = call.value("self", type), s = text.unary(Unary::logistic, a);
  const auto slope = text.multiply(s, text.add(text.multiply(a, text.subtract(text.splat(1, type), s)), 1));
  call.give(text.multiply(call.value("grad_output", type), slope));
}

bool is_tanh_form(const Call& call) { return call.argument("approximate").toStringRef() == "tanh"; }

/// tanh's argument in the approximation: sqrt(2 / pi) (x + 0.044715 x^3).
constexpr double gelu_cubic = 0.044715;
const double gelu_scale = std::sqrt(2 / M_PI);

Value gelu_tanh(ModuleText& text, const Value& x) {
  const auto cube = text.multiply(text.multiply(x, x), x);
  return text.unary(Unary::tanh, text.multiply(text.add(x, text.multiply(cube, gelu_cubic)), gelu_scale));
}

/// The share of x that passes: the normal distribution function.
Value gelu_share(ModuleText& text, const Value& x, bool tanh) {
  const auto bend = tanh ? gelu_tanh(text, x) : text.unary(Unary::erf, text.multiply(x, std::sqrt(0.5)));
  return text.multiply(text.add(bend, 1), 0.5);
}

void gelu(Call& call) {
  const auto x = call.value("self", wide(call.result_type()));
  call.give(call.text.multiply(x, gelu_share(call.text, x, is_tanh_form(call))));
}

void gelu_backward(Call& call) {
  auto& text = call.text;
  const Type type = wide(call.result_type());
  const auto x = call.value("self", type), square = text.multiply(x, x);
  Value density;  // the derivative of the share
  if (is_tanh_form(call)) {
    const auto bend = gelu_tanh(text, x);
    const auto outer = text.subtract(text.splat(1, type), text.multiply(bend, bend));
    const auto inner = text.multiply(text.add(text.multiply(square, 3 * gelu_cubic), 1), gelu_scale);
    density = text.multiply(text.multiply(outer, inner), 0.5);
  } else {
    density = text.multiply(text.unary(Unary::exponential, text.multiply(square, -0.5)), 1 / std::sqrt(2 * M_PI));
  }
  const auto slope = text.add(gelu_share(text, x, is_tanh_form(call)), text.multiply(x, density));
  call.give(text.multiply(call.value("grad_output", type), slope));
}

void tanh_backward(Call& call) {
  auto& text = call.text;
  const Type type = wide(call.result_type());
  const auto output = call.value("output", type);
  const auto slope = text.subtract(text.splat(1, type), text.multiply(output, output));
  call.give(text.multiply(call.value("grad_output", type), slope));
}

void sigmoid_backward(Call& call) {
  auto& text = call.text;
  const Type type = wide(call.result_type());
  const auto s = call.value("output", type);
  const auto slope = text.multiply(s, text.subtract(text.splat(1, type), s));
  call.give(text.multiply(call.value("grad_output", type), slope));
}

/// log(1 / (1 + exp(-x))) = min(x, 0) - log(1 + exp(-|x|)). The second result is exp(-|x|).
void log_sigmoid(Call& call) {
  auto& text = call.text;
  const auto given = call.value("self"), x = widened(text, given);
  const auto raised = text.unary(Unary::exponential, text.unary(Unary::negate, text.unary(Unary::abs, x)));
  const auto below = text.binary(Binary::minimum, x, text.splat(0, x.type));
  const auto result = text.subtract(below, text.unary(Unary::log_plus_one, raised));
  call.give(0, text.convert(result, given.type.element));
  call.give(1, text.convert(raised, given.type.element));
}

void log_sigmoid_backward(Call& call) {
  auto& text = call.text;
  const auto given = call.value("self"), x = widened(text, given);
  const auto slope = text.unary(Unary::logistic, text.unary(Unary::negate, x));
  call.give(text.convert(text.multiply(call.value("grad_output", x.type), slope), given.type.element));
}

}  // namespace

void add_activations(Lowerings& table) {
  table.insert({{"aten::relu", {relu, true}},
                {"aten::threshold_backward", {threshold_backward}},
                {"aten::silu", {silu}},
                {"aten::silu_backward", {silu_backward}},
                {"aten::gelu", {gelu}},
                {"aten::gelu_backward", {gelu_backward}},
                {"aten::tanh_backward", {tanh_backward}},
                {"aten::sigmoid_backward", {sigmoid_backward}},
                {"aten::log_sigmoid_forward", {log_sigmoid, true}},
                {"aten::log_sigmoid_backward", {log_sigmoid_backward, true}}});
}

}  // namespace runner::xla
