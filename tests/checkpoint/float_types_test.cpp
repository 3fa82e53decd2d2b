// Conversions between floating-point dtypes: exact if possible, otherwise rounded to nearest even.
#include "runner/checkpoint/safetensors.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "support.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

/// The definition (IEEE 754 binary16), computed in doubles.
double half_by_definition(uint16_t half) {
  double sign = half & 0x8000 ? -1 : 1;
  int exponent = (half >> 10) & 0x1f, mantissa = half & 0x3ff;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

/// Whether `rounded` is the encoding nearest to `value` among its neighbours, and even on a tie. Encodings of one sign
/// are sorted by magnitude, so neighbours differ by one.
template <typename Decode>
bool is_nearest(float value, uint16_t rounded, Decode decode) {
  double error = std::fabs(static_cast<double>(value) - decode(rounded));
  for (int step : {-1, 1}) {
    auto neighbour = static_cast<uint16_t>(rounded + step);
    if ((neighbour ^ rounded) & 0x8000) continue;
    double other = decode(neighbour);
    if (!std::isfinite(other)) continue;
    double difference = std::fabs(static_cast<double>(value) - other);
    if (difference < error || (difference == error && (rounded & 1))) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("all halves convert to the floats of the definition, and back") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    auto half = static_cast<uint16_t>(bits);
    if ((half & 0x7c00) == 0x7c00) continue;
    REQUIRE(half_to_float(half) == half_by_definition(half));
    REQUIRE(std::signbit(half_to_float(half)) == bool(half & 0x8000));
    REQUIRE(float_to_half(half_to_float(half)) == half);
  }
  CHECK(half_to_float(0x7c00) == std::numeric_limits<float>::infinity());
  CHECK(half_to_float(0xfc00) == -std::numeric_limits<float>::infinity());
  CHECK(std::isnan(half_to_float(0x7e01)));
}

TEST_CASE("all bfloat16 values are the same after a round trip") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    auto value = static_cast<uint16_t>(bits);
    if ((value & 0x7f80) == 0x7f80 && (value & 0x7f)) continue;
    REQUIRE(float_to_bfloat16(bfloat16_to_float(value)) == value);
  }
  CHECK(std::isnan(bfloat16_to_float(float_to_bfloat16(std::nanf("")))));
}

TEST_CASE("floats are rounded to nearest, ties to even") {
  auto decode_bfloat16 = [](uint16_t value) { return static_cast<double>(bfloat16_to_float(value)); };
  std::mt19937 random(5);
  for (int i = 0; i < 200'000; ++i) {
    float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isfinite(value)) continue;
    if (std::fabs(value) < 0x1.fep127f) REQUIRE(is_nearest(value, float_to_bfloat16(value), decode_bfloat16));
    value = std::ldexp(value,
                       std::ilogb(value) == FP_ILOGB0 ? 0 : static_cast<int>(random() % 44) - 28 - std::ilogb(value));
    if (std::fabs(value) < 65504) REQUIRE(is_nearest(value, float_to_half(value), half_by_definition));
  }
  for (uint16_t half = 0; half < 0x7bff; ++half) {  // every tie
    float tie =
        static_cast<float>((half_by_definition(half) + half_by_definition(static_cast<uint16_t>(half + 1))) / 2);
    REQUIRE(float_to_half(tie) == (half & 1 ? half + 1 : half));
  }
  CHECK(float_to_half(65519.996f) == 0x7bff);
  CHECK(float_to_half(65520.0f) == 0x7c00);
  CHECK(float_to_half(-1e30f) == 0xfc00);
}

TEST_CASE("arrays are converted by dtype name, and a value out of range is reported") {
  std::vector<double> doubles = {1.5, -3, 0.1};
  std::vector<float> out(3);
  to_floats("F64", bytes_of(doubles), out);
  CHECK(out == std::vector<float>{1.5f, -3.0f, 0.1f});
  std::vector<float> values = {1, -2.5f, 65504};
  std::vector<std::byte> bytes(6);
  CHECK(from_floats("F16", values, bytes));
  to_floats("F16", bytes, out);
  CHECK(out == values);
  values[2] = 65520;
  CHECK_FALSE(from_floats("F16", values, bytes));
  CHECK(from_floats("BF16", values, bytes));
  values[2] = std::numeric_limits<float>::max();
  CHECK_FALSE(from_floats("BF16", values, bytes));
  values[2] = std::numeric_limits<float>::infinity();
  CHECK(from_floats("BF16", values, bytes));
}
