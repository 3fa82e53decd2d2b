// Operators that compute each element of the result from the same element of the operands.
#include <cmath>
#include <limits>

#include "strategies/xla/lowering.hpp"
#include "strategies/xla/lowering_tools.hpp"

namespace runner::xla {

namespace {

template <Binary kind>
void binary(Call& call) {
  const Type type = wide(call.result_type());
  auto other = call.value("other", type);
  if (const double alpha = call.number_or("alpha", 1); alpha != 1) other = call.text.multiply(other, alpha);
  call.give(call.text.binary(kind, call.value("self", type), other));
}

/// The type to which LibTorch promotes both operands.
torch::ScalarType common_type(const Call& call) {
  const auto &self = call.argument("self"), &other = call.argument("other");
  if (!self.isTensor()) return at::result_type(self.toScalar(), other.toTensor());
  return other.isTensor() ? at::result_type(self.toTensor(), other.toTensor())
                          : at::result_type(self.toTensor(), other.toScalar());
}
Type result_of_both(const Call& call) {
  return {element_type(common_type(call)), call.common_shape({"self", "other"})};
}

template <Binary kind>
void extreme_of_two(Call& call) {
  const Type type = call.result_type();
  call.give(extreme_of(call.text, kind, call.value("self", type), call.value("other", type)));
}

void subtract_from_other(Call& call) {
  const Type result = result_of_both(call), type = wide(result);
  auto self = call.value("self", type);
  if (const double alpha = call.number_or("alpha", 1); alpha != 1) self = call.text.multiply(self, alpha);
  call.give(call.text.convert(call.text.subtract(call.value("other", type), self), result.element));
}

// ---- division

Value without_fraction(ModuleText& text, const Value& a) {
  if (!is_float(a)) return a;
  return text.select(is_negative(text, a), text.unary(Unary::ceil, a), text.unary(Unary::floor, a));
}

/// Where a remainder of a division towards zero has not the sign of the divisor, and is not 0.
Value has_other_sign(ModuleText& text, const Value& rest, const Value& divisor) {
  const auto differs = text.binary(Binary::xor_, is_negative(text, rest), is_negative(text, divisor));
  return text.binary(Binary::and_, truth(text, rest), differs);
}

/// From the remainder, as LibTorch does, because a quotient may be rounded up to an integer.
Value floored_quotient(ModuleText& text, const Value& a, const Value& divisor) {
  const auto rest = text.binary(Binary::remainder, a, divisor);
  auto quotient = text.divide(text.subtract(a, rest), divisor);
  quotient = text.select(has_other_sign(text, rest, divisor), text.add(quotient, -1), quotient);
  if (!is_float(a)) return quotient;
  const auto floor = text.unary(Unary::floor, quotient);
  const auto exceeds =
      text.compare(Comparison::greater, text.subtract(quotient, floor), text.splat(0.5, quotient.type));
  const auto nearest = text.select(exceeds, text.add(floor, 1), floor);
  return text.select(truth(text, divisor), nearest, text.divide(a, divisor));
}

void divide(Call& call) {
  const Type type = wide(call.result_type());
  const auto a = call.value("self", type), divisor = call.value("other", type);
  if (call.has("rounding_mode") && call.argument("rounding_mode").toStringRef() == "floor")
    return call.give(floored_quotient(call.text, a, divisor));
  const auto quotient = call.text.divide(a, divisor);
  call.give(call.has("rounding_mode") ? without_fraction(call.text, quotient) : quotient);
}

void floor_divide(Call& call) {
  const Type result = result_of_both(call), type = wide(result);
  const auto quotient = floored_quotient(call.text, call.value("self", type), call.value("other", type));
  call.give(call.text.convert(quotient, result.element));
}

/// The sign of the result is that of the divisor.
void remainder(Call& call) {
  auto& text = call.text;
  const Type result = result_of_both(call), type = wide(result);
  const auto divisor = call.value("other", type);
  const auto rest = text.binary(Binary::remainder, call.value("self", type), divisor);
  const auto moved = text.select(has_other_sign(text, rest, divisor), text.add(rest, divisor), rest);
  call.give(text.convert(moved, result.element));
}

// ---- comparisons and logic

template <Comparison kind>
void compare(Call& call) {
  const Type type{element_type(common_type(call)), call.result_type().shape};
  call.give(call.text.compare(kind, call.value("self", type), call.value("other", type)));
}

template <Binary kind>
void logical(Call& call) {
  const Shape shape = call.common_shape({"self", "other"});
  const auto operand = [&](const char* name) { return call.text.expand(truth(call.text, call.value(name)), shape); };
  call.give(call.text.binary(kind, operand("self"), operand("other")));
}

void logical_not(Call& call) { call.give(call.text.unary(Unary::not_, truth(call.text, call.value("self")))); }

void is_nan(Call& call) { call.give(not_numbers(call.text, call.value("self"))); }

template <int sign>
void is_infinite(Call& call) {
  auto& text = call.text;
  const auto a = call.value("self");
  if (!is_float(a)) return call.give(text.splat(0, {ElementType::boolean, a.shape()}));
  call.give(text.compare(Comparison::equal, a, text.splat(sign * std::numeric_limits<double>::infinity(), a.type)));
}

// ---- functions of one operand

template <Unary kind>
void unary(Call& call) {
  call.give(call.text.unary(kind, call.value("self", wide(call.result_type()))));
}

/// Integers stay as they are.
template <Unary kind>
void rounded(Call& call) {
  const auto a = call.value("self");
  call.give(is_float(a) ? call.text.unary(kind, widened(call.text, a)) : a);
}

/// To a number of decimals; a negative one stands for digits before the point.
void round_to(Call& call) {
  auto& text = call.text;
  const auto a = call.value("self");
  if (!is_float(a) || !call.has("decimals") || call.integer("decimals") == 0) return rounded<Unary::round>(call);
  const auto decimals = static_cast<double>(call.integer("decimals"));
  const auto x = widened(text, a), scale = text.splat(std::pow(10, std::abs(decimals)), x.type);
  const auto inside = decimals > 0 ? text.multiply(x, scale) : text.divide(x, scale);
  const auto whole = text.unary(Unary::round, inside);
  call.give(decimals > 0 ? text.divide(whole, scale) : text.multiply(whole, scale));
}

void truncate(Call& call) { call.give(without_fraction(call.text, call.value("self"))); }

void absolute(Call& call) { call.give(call.text.unary(Unary::abs, call.value("self"))); }

/// 0 for what is not a number.
void sign(Call& call) {
  auto& text = call.text;
  const auto a = call.value("self");
  if (a.type.element == ElementType::boolean) return call.give(a);
  const auto zero = text.splat(0, a.type);
  const auto above = text.convert(text.compare(Comparison::greater, a, zero), a.type.element);
  call.give(text.subtract(above, text.convert(is_negative(text, a), a.type.element)));
}

Value squared(ModuleText& text, const Value& a) { return text.multiply(a, a); }

void power(Call& call) {
  auto& text = call.text;
  const Type type = wide(call.result_type());
  const auto a = call.value("self", type);
  if (!call.argument("exponent").isTensor()) {
    const double exponent = call.number("exponent");
    if (exponent == 2) return call.give(squared(text, a));
    if (exponent == 3) return call.give(text.multiply(squared(text, a), a));
    if (exponent == 0.5) return call.give(text.unary(Unary::sqrt, a));
    if (exponent == -0.5) return call.give(text.unary(Unary::rsqrt, a));
    if (exponent == -1) return call.give(text.divide(text.splat(1, type), a));
  }
  call.give(text.binary(Binary::power, a, call.value("exponent", type)));
}

void reciprocal(Call& call) {
  const Type type = wide(call.result_type());
  call.give(call.text.divide(call.text.splat(1, type), call.value("self", type)));
}

// ---- bounds, masks and combinations

void clamp(Call& call) {
  auto& text = call.text;
  const Type type = call.result_type();
  auto a = call.value("self", type);
  if (call.has("min")) a = extreme_of(text, Binary::maximum, a, call.value("min", type));
  if (call.has("max")) a = extreme_of(text, Binary::minimum, a, call.value("max", type));
  call.give(a);
}

double largest_finite(ElementType element) {
  switch (element) {
    case ElementType::float16:
      return 65504;
    case ElementType::bfloat16:
      return 0x1.FEp127;
    case ElementType::float32:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

void nan_to_num(Call& call) {
  auto& text = call.text;
  const auto a = call.value("self");
  if (!is_float(a)) return call.give(a);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double largest = largest_finite(a.type.element);
  const auto replaced = [&](const Value& old, const Value& where, const char* name, double otherwise) {
    return text.select(where, text.splat(call.number_or(name, otherwise), a.type), old);
  };
  const auto equals = [&](double number) { return text.compare(Comparison::equal, a, text.splat(number, a.type)); };
  auto result = replaced(a, not_numbers(text, a), "nan", 0);
  result = replaced(result, equals(infinity), "posinf", largest);
  call.give(replaced(result, equals(-infinity), "neginf", -largest));
}

void where(Call& call) {
  const auto element = element_type(at::result_type(call.tensor("self"), call.tensor("other")));
  const Type type{element, call.common_shape({"condition", "self", "other"})};
  const auto condition = call.text.expand(truth(call.text, call.value("condition")), type.shape);
  call.give(call.text.select(condition, call.value("self", type), call.value("other", type)));
}

void masked_fill(Call& call) {
  const Type type{element_type(call.tensor("self").scalar_type()), call.common_shape({"self", "mask"})};
  const auto mask = call.text.expand(truth(call.text, call.value("mask")), type.shape);
  call.give(call.text.select(mask, call.value("value", type), call.value("self", type)));
}

template <Binary kind>
void add_combined(Call& call) {
  auto& text = call.text;
  const Type type = wide(call.result_type());
  const auto combined = text.binary(kind, call.value("tensor1", type), call.value("tensor2", type));
  call.give(text.add(call.value("self", type), text.multiply(combined, call.number_or("value", 1))));
}

void lerp(Call& call) {
  auto& text = call.text;
  const Type type = wide(call.result_type());
  const auto begin = call.value("self", type);
  const auto way = text.subtract(call.value("end", type), begin);
  call.give(text.add(begin, text.multiply(way, call.value("weight", type))));
}

void add_arithmetic(Lowerings& table) {
  table.insert({{"aten::add", {binary<Binary::add>}},
                {"aten::sub", {binary<Binary::subtract>}},
                {"aten::rsub", {subtract_from_other, true}},
                {"aten::mul", {binary<Binary::multiply>}},
                {"aten::maximum", {extreme_of_two<Binary::maximum>}},
                {"aten::minimum", {extreme_of_two<Binary::minimum>}},
                {"aten::div", {divide}},
                {"aten::floor_divide", {floor_divide, true}},
                {"aten::remainder", {remainder, true}},
                {"aten::fmod", {binary<Binary::remainder>}},
                {"aten::pow", {power}},
                {"aten::bitwise_and", {binary<Binary::and_>}},
                {"aten::bitwise_or", {binary<Binary::or_>}},
                {"aten::bitwise_xor", {binary<Binary::xor_>}},
                {"aten::addcmul", {add_combined<Binary::multiply>}},
                {"aten::addcdiv", {add_combined<Binary::divide>}},
                {"aten::lerp", {lerp}},
                {"aten::clamp", {clamp}},
                {"aten::clamp_min", {clamp}},
                {"aten::clamp_max", {clamp}},
                {"aten::nan_to_num", {nan_to_num, true}},
                {"aten::where.self", {where, true}},
                {"aten::masked_fill", {masked_fill, true}}});
}

void add_logic(Lowerings& table) {
  table.insert({{"aten::eq", {compare<Comparison::equal>}},
                {"aten::ne", {compare<Comparison::not_equal>}},
                {"aten::lt", {compare<Comparison::less>}},
                {"aten::le", {compare<Comparison::less_equal>}},
                {"aten::gt", {compare<Comparison::greater>}},
                {"aten::ge", {compare<Comparison::greater_equal>}},
                {"aten::logical_and", {logical<Binary::and_>, true}},
                {"aten::logical_or", {logical<Binary::or_>, true}},
                {"aten::logical_xor", {logical<Binary::xor_>, true}},
                {"aten::logical_not", {logical_not, true}},
                {"aten::isnan", {is_nan, true}},
                {"aten::isposinf", {is_infinite<1>}},
                {"aten::isneginf", {is_infinite<-1>}}});
}

void add_functions(Lowerings& table) {
  table.insert({{"aten::exp", {unary<Unary::exponential>}},
                {"aten::expm1", {unary<Unary::exponential_minus_one>}},
                {"aten::log", {unary<Unary::log>}},
                {"aten::log1p", {unary<Unary::log_plus_one>}},
                {"aten::tanh", {unary<Unary::tanh>}},
                {"aten::sigmoid", {unary<Unary::logistic>}},
                {"aten::rsqrt", {unary<Unary::rsqrt>}},
                {"aten::sqrt", {unary<Unary::sqrt>}},
                {"aten::neg", {unary<Unary::negate>}},
                {"aten::abs", {absolute, true}},
                {"aten::sign", {sign}},
                {"aten::sgn", {sign, true}},
                {"aten::floor", {rounded<Unary::floor>}},
                {"aten::ceil", {rounded<Unary::ceil>}},
                {"aten::round", {round_to}},
                {"aten::trunc", {truncate}},
                {"aten::cos", {unary<Unary::cosine>}},
                {"aten::sin", {unary<Unary::sine>}},
                {"aten::erf", {unary<Unary::erf>}},
                {"aten::bitwise_not", {unary<Unary::not_>}},
                {"aten::reciprocal", {reciprocal}}});
}

}  // namespace

void add_elementwise(Lowerings& table) {
  add_arithmetic(table);
  add_logic(table);
  add_functions(table);
}

}  // namespace runner::xla
