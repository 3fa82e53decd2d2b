#include "runner/checkpoint/float_types.hpp"

#include <bit>
#include <cmath>
#include <cstring>

#include "runner/base/error.hpp"
#include "runner/checkpoint/safetensors.hpp"

namespace runner {

uint16_t float_to_bfloat16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

namespace {

/// Tensors in a file may be unaligned, so elements are copied with memcpy.
template <typename Element, typename Convert>
void decode(std::span<const std::byte> bytes, std::span<float> out, Convert convert) {
  for (size_t i = 0; i < out.size(); ++i) {
    Element element;
    std::memcpy(&element, bytes.data() + i * sizeof element, sizeof element);
    out[i] = convert(element);
  }
}

template <typename Element, typename Convert>
void encode(std::span<const float> values, std::span<std::byte> out, Convert convert) {
  for (size_t i = 0; i < values.size(); ++i) {
    Element element = convert(values[i]);
    std::memcpy(out.data() + i * sizeof element, &element, sizeof element);
  }
}

bool overflows(std::span<const float> values, float limit) {
  for (float value : values)
    if (std::fabs(value) >= limit && std::isfinite(value)) return true;
  return false;
}

}  // namespace

bool is_float_dtype(const std::string& dtype) {
  return dtype == "F64" || dtype == "F32" || dtype == "F16" || dtype == "BF16";
}

void to_floats(const std::string& dtype, std::span<const std::byte> bytes, std::span<float> out) {
  RUNNER_CHECK(is_float_dtype(dtype), "`{}`", dtype);
  RUNNER_CHECK(bytes.size() == out.size() * static_cast<size_t>(dtype_bytes(dtype)), "{} bytes for {} of {}",
               bytes.size(), out.size(), dtype);
  if (dtype == "F64") decode<double>(bytes, out, [](double value) { return static_cast<float>(value); });
  if (dtype == "F32") std::memcpy(out.data(), bytes.data(), bytes.size());
  if (dtype == "F16") decode<uint16_t>(bytes, out, half_to_float);
  if (dtype == "BF16") decode<uint16_t>(bytes, out, bfloat16_to_float);
}

bool from_floats(const std::string& dtype, std::span<const float> values, std::span<std::byte> out) {
  RUNNER_CHECK(is_float_dtype(dtype) && dtype != "F64", "`{}`", dtype);
  RUNNER_CHECK(out.size() == values.size() * static_cast<size_t>(dtype_bytes(dtype)), "{} of {} into {} bytes",
               values.size(), dtype, out.size());
  if (dtype == "F32") std::memcpy(out.data(), values.data(), out.size());
  if (dtype == "F16") encode<uint16_t>(values, out, float_to_half);
  if (dtype == "BF16") encode<uint16_t>(values, out, float_to_bfloat16);
  if (dtype == "F16") return !overflows(values, 65520.0f);
  if (dtype == "BF16") return !overflows(values, 0x1.ffp127f);
  return true;
}

}  // namespace runner
