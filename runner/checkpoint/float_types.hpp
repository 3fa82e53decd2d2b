// Conversions between float and the floating-point dtypes of safetensors.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "runner/base/half.hpp"

namespace runner {

/// Rounds to nearest, ties to even.
uint16_t float_to_bfloat16(float value);

/// True for F64, F32, F16 and BF16.
bool is_float_dtype(const std::string& dtype);
/// Converts out.size() elements. F64 is rounded to float.
void to_floats(const std::string& dtype, std::span<const std::byte> bytes, std::span<float> out);
/// Converts to F32, F16 or BF16. Returns false if a finite value became infinite.
bool from_floats(const std::string& dtype, std::span<const float> values, std::span<std::byte> out);

}  // namespace runner
