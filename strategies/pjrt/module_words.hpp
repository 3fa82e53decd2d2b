// Types, numbers and names as they are written in StableHLO's text. Only the sources of this library include it.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "runner/base/error.hpp"
#include "strategies/pjrt/module_text.hpp"

namespace runner::pjrt {

inline const char* element_name(ElementType element) {
  switch (element) {
    case ElementType::boolean:
      return "i1";
    case ElementType::int32:
      return "i32";
    case ElementType::int64:
      return "i64";
    case ElementType::float16:
      return "f16";
    case ElementType::bfloat16:
      return "bf16";
    case ElementType::float32:
      return "f32";
    case ElementType::float64:
      return "f64";
  }
  return "";
}

inline std::string text_of(const Type& type) {
  std::string text = "tensor<";
  for (const int64_t size : type.shape) text += std::to_string(size) + "x";
  return text + element_name(type.element) + ">";
}

inline std::string text_of(const Value& value) {
  return value.part < 0 ? fmt::format("%{}", value.id) : fmt::format("%{}#{}", value.id, value.part);
}

inline std::string list_of(const Shape& numbers) { return fmt::format("[{}]", fmt::join(numbers, ", ")); }

inline std::string array_of(const Shape& numbers) {
  return numbers.empty() ? "array<i64>" : fmt::format("array<i64: {}>", fmt::join(numbers, ", "));
}

/// A literal that XLA reads as this number exactly.
inline std::string literal(double number, ElementType element) {
  if (element == ElementType::boolean) return number != 0 ? "true" : "false";
  if (!is_float(element)) {
    RUNNER_CHECK(std::trunc(number) == number && std::abs(number) <= 0x1p53, "{} as an integer", number);
    return std::to_string(static_cast<int64_t>(number));
  }
  if (std::isfinite(number)) return fmt::format("{:.17e}", number);
  // Bits, because the text has no infinities. All formats are sign, exponent, fraction.
  const bool negative = std::signbit(number);
  switch (element) {
    case ElementType::float16:
      return std::isnan(number) ? "0x7E00" : negative ? "0xFC00" : "0x7C00";
    case ElementType::bfloat16:
      return std::isnan(number) ? "0x7FC0" : negative ? "0xFF80" : "0x7F80";
    case ElementType::float32:
      return std::isnan(number) ? "0x7FC00000" : negative ? "0xFF800000" : "0x7F800000";
    default:
      return std::isnan(number) ? "0x7FF8000000000000" : negative ? "0xFFF0000000000000" : "0x7FF0000000000000";
  }
}

inline const char* name_of(Binary kind) {
  constexpr const char* names[] = {"add",   "subtract",  "multiply", "divide", "maximum", "minimum",
                                   "power", "remainder", "and",      "or",     "xor",     "shift_right_logical"};
  return names[static_cast<size_t>(kind)];
}

inline const char* name_of(Unary kind) {
  constexpr const char* names[] = {"stablehlo.exponential",
                                   "stablehlo.exponential_minus_one",
                                   "stablehlo.log",
                                   "stablehlo.log_plus_one",
                                   "stablehlo.tanh",
                                   "stablehlo.logistic",
                                   "stablehlo.rsqrt",
                                   "stablehlo.sqrt",
                                   "stablehlo.negate",
                                   "stablehlo.abs",
                                   "stablehlo.sign",
                                   "stablehlo.floor",
                                   "stablehlo.cosine",
                                   "stablehlo.sine",
                                   "chlo.erf",
                                   "stablehlo.not",
                                   "stablehlo.is_finite",
                                   "stablehlo.ceil",
                                   "stablehlo.round_nearest_even"};
  return names[static_cast<size_t>(kind)];
}

inline const char* name_of(Comparison kind) {
  constexpr const char* names[] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
  return names[static_cast<size_t>(kind)];
}

inline std::string signature(const std::vector<Value>& operands, const Type& type) {
  std::vector<std::string> types;
  for (const auto& operand : operands) types.push_back(text_of(operand.type));
  return fmt::format("({}) -> {}", fmt::join(types, ", "), text_of(type));
}

inline Shape all_but(int64_t rank, const Shape& left_out) {
  Shape rest;
  for (int64_t i = 0; i < rank; ++i)
    if (std::ranges::find(left_out, i) == left_out.end()) rest.push_back(i);
  return rest;
}

}  // namespace runner::pjrt
