// Floating-point dtypes, as safetensors names them, to float and back.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace runner {

float half_to_float(uint16_t half);
/// Round to nearest, ties to even; beyond 65504 infinity.
uint16_t float_to_half(float value);
float bfloat16_to_float(uint16_t value);
/// Round to nearest, ties to even.
uint16_t float_to_bfloat16(float value);

/// F64, F32, F16 or BF16.
bool is_float_dtype(const std::string& dtype);
/// `bytes` holds out.size() elements. F64 is rounded.
void to_floats(const std::string& dtype, std::span<const std::byte> bytes, std::span<float> out);
/// To F32, F16 or BF16. False when a finite value became infinite.
bool from_floats(const std::string& dtype, std::span<const float> values, std::span<std::byte> out);

}  // namespace runner
