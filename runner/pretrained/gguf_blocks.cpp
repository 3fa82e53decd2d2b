// Conversion of the blocks of GGUF tensors to floats. Names of fields are those of ggml.
#include "runner/pretrained/gguf_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "runner/base/error.hpp"
#include "runner/base/half.hpp"

namespace runner {

namespace {

constexpr int64_t block_elements_max = 256;

uint16_t read_16(const uint8_t* bytes) { return static_cast<uint16_t>(bytes[0] | bytes[1] << 8); }
float read_half(const uint8_t* bytes) { return half_to_float(read_16(bytes)); }
template <typename Number>
Number read_number(const uint8_t* bytes) {
  Number number;
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

void decode_f32(const uint8_t* block, float* out) { *out = read_number<float>(block); }
void decode_f16(const uint8_t* block, float* out) { *out = read_half(block); }
void decode_bf16(const uint8_t* block, float* out) { *out = bfloat16_to_float(read_16(block)); }
void decode_f64(const uint8_t* block, float* out) { *out = static_cast<float>(read_number<double>(block)); }

// Blocks of 32 elements: element i is in the low half of byte i, element i + 16 in the high half.

/// {d: half, qs: 16 bytes}
void decode_q4_0(const uint8_t* block, float* out) {
  const float d = read_half(block);
  const uint8_t* qs = block + 2;
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>((qs[i] & 0xf) - 8) * d;
    out[i + 16] = static_cast<float>((qs[i] >> 4) - 8) * d;
  }
}

/// {d, m: halves, qs: 16 bytes}
void decode_q4_1(const uint8_t* block, float* out) {
  const float d = read_half(block), m = read_half(block + 2);
  const uint8_t* qs = block + 4;
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>(qs[i] & 0xf) * d + m;
    out[i + 16] = static_cast<float>(qs[i] >> 4) * d + m;
  }
}

/// The fifth bits of elements i and i + 16 are bits i and i + 16 of `qh`.
int low_five(const uint8_t* qs, uint32_t qh, int i) { return (qs[i] & 0xf) | static_cast<int>((qh >> i & 1) << 4); }
int high_five(const uint8_t* qs, uint32_t qh, int i) {
  return (qs[i] >> 4) | static_cast<int>((qh >> (i + 16) & 1) << 4);
}

/// {d: half, qh: 4 bytes, qs: 16 bytes}
void decode_q5_0(const uint8_t* block, float* out) {
  const float d = read_half(block);
  const auto qh = read_number<uint32_t>(block + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>(low_five(block + 6, qh, i) - 16) * d;
    out[i + 16] = static_cast<float>(high_five(block + 6, qh, i) - 16) * d;
  }
}

/// {d, m: halves, qh: 4 bytes, qs: 16 bytes}
void decode_q5_1(const uint8_t* block, float* out) {
  const float d = read_half(block), m = read_half(block + 2);
  const auto qh = read_number<uint32_t>(block + 4);
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<float>(low_five(block + 8, qh, i)) * d + m;
    out[i + 16] = static_cast<float>(high_five(block + 8, qh, i)) * d + m;
  }
}

/// {d: half, qs: 32 signed bytes}
void decode_q8_0(const uint8_t* block, float* out) {
  const float d = read_half(block);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * d;
}

// Blocks of 256 elements ("K-quants"): groups of 16 or 32 elements with a scale, and in some types a minimum, of their own.

/// {scales: 16 bytes, qs: 64 bytes, d, dmin: halves}
void decode_q2_k(const uint8_t* block, float* out) {
  const uint8_t *scales = block, *qs = block + 16;
  const float d = read_half(block + 80), dmin = read_half(block + 82);
  for (int part = 0; part < 2; ++part, qs += 32)
    for (int shift = 0; shift < 8; shift += 2)
      for (int group = 0; group < 2; ++group, ++scales)
        for (int i = 0; i < 16; ++i)
          *out++ = d * static_cast<float>(*scales & 0xf) * static_cast<float>(qs[16 * group + i] >> shift & 3) -
                   dmin * static_cast<float>(*scales >> 4);
}

/// Scale `j` of 16: 6 bits, the low 4 in bytes 0-7 and the high 2 in bytes 8-11.
int scale_of_q3(const uint8_t* scales, int j) {
  const int low = j < 8 ? scales[j] & 0xf : scales[j - 8] >> 4;
  return (low | (scales[8 + j % 4] >> (2 * (j / 4)) & 3) << 4) - 32;
}

/// {hmask: 32 bytes, qs: 64 bytes, scales: 12 bytes, d: half}
void decode_q3_k(const uint8_t* block, float* out) {
  const uint8_t *hmask = block, *qs = block + 32, *scales = block + 96;
  const float d = read_half(block + 108);
  for (int group = 0; group < 16; ++group) {
    const float scale = d * static_cast<float>(scale_of_q3(scales, group));
    const int part = group / 8, shift = 2 * (group / 2 % 4), side = 16 * (group % 2), bit = group / 2;
    for (int i = 0; i < 16; ++i) {
      const int value = (qs[32 * part + side + i] >> shift & 3) - (hmask[side + i] >> bit & 1 ? 0 : 4);
      *out++ = scale * static_cast<float>(value);
    }
  }
}

/// Scale and minimum `j` of 8, of 6 bits each, in 12 bytes.
void scale_and_minimum(const uint8_t* scales, int j, int& scale, int& minimum) {
  if (j < 4) {
    scale = scales[j] & 63;
    minimum = scales[j + 4] & 63;
  } else {
    scale = (scales[j + 4] & 0xf) | (scales[j - 4] >> 6) << 4;
    minimum = scales[j + 4] >> 4 | (scales[j] >> 6) << 4;
  }
}

/// Q4_K is {d, dmin: halves, scales: 12 bytes, qs: 128 bytes}; in Q5_K, qh (32 bytes, or null) is before qs.
void decode_4_or_5_bits(const uint8_t* block, const uint8_t* qh, const uint8_t* qs, float* out) {
  const float d = read_half(block), dmin = read_half(block + 2);
  for (int group = 0; group < 8; ++group) {
    int scale = 0, minimum = 0;
    scale_and_minimum(block + 4, group, scale, minimum);
    const float factor = d * static_cast<float>(scale), offset = dmin * static_cast<float>(minimum);
    for (int i = 0; i < 32; ++i) {
      const uint8_t byte = qs[32 * (group / 2) + i];
      int value = group % 2 == 0 ? byte & 0xf : byte >> 4;
      if (qh) value |= (qh[i] >> group & 1) << 4;
      *out++ = factor * static_cast<float>(value) - offset;
    }
  }
}

void decode_q4_k(const uint8_t* block, float* out) { decode_4_or_5_bits(block, nullptr, block + 16, out); }
void decode_q5_k(const uint8_t* block, float* out) { decode_4_or_5_bits(block, block + 16, block + 48, out); }

/// {ql: 128 bytes, qh: 64 bytes, scales: 16 signed bytes, d: half}
void decode_q6_k(const uint8_t* block, float* out) {
  const uint8_t *ql = block, *qh = block + 128, *scales = block + 192;
  const float d = read_half(block + 208);
  for (int part = 0; part < 2; ++part)
    for (int quarter = 0; quarter < 4; ++quarter)
      for (int i = 0; i < 32; ++i) {
        const uint8_t low = ql[64 * part + 32 * (quarter % 2) + i];
        const int value = (quarter < 2 ? low & 0xf : low >> 4) | (qh[32 * part + i] >> (2 * quarter) & 3) << 4;
        const auto scale = static_cast<int8_t>(scales[8 * part + 2 * quarter + i / 16]);
        *out++ = d * static_cast<float>(scale) * static_cast<float>(value - 32);
      }
}

// clang-format off
constexpr GgufType types[] = {
    {0, "F32", 1, 4, decode_f32},        {1, "F16", 1, 2, decode_f16},
    {28, "F64", 1, 8, decode_f64},       {30, "BF16", 1, 2, decode_bf16},
    {2, "Q4_0", 32, 18, decode_q4_0},    {3, "Q4_1", 32, 20, decode_q4_1},
    {6, "Q5_0", 32, 22, decode_q5_0},    {7, "Q5_1", 32, 24, decode_q5_1},
    {8, "Q8_0", 32, 34, decode_q8_0},
    {10, "Q2_K", 256, 84, decode_q2_k},  {11, "Q3_K", 256, 110, decode_q3_k},
    {12, "Q4_K", 256, 144, decode_q4_k}, {13, "Q5_K", 256, 176, decode_q5_k},
    {14, "Q6_K", 256, 210, decode_q6_k},
    // These types have known sizes, so that files with them are checked and their other content is read.
    {9, "Q8_1", 32, 40, nullptr},        {15, "Q8_K", 256, 292, nullptr},
    {16, "IQ2_XXS", 256, 66, nullptr},   {17, "IQ2_XS", 256, 74, nullptr},
    {18, "IQ3_XXS", 256, 98, nullptr},   {19, "IQ1_S", 256, 50, nullptr},
    {20, "IQ4_NL", 32, 18, nullptr},     {21, "IQ3_S", 256, 110, nullptr},
    {22, "IQ2_S", 256, 82, nullptr},     {23, "IQ4_XS", 256, 136, nullptr},
    {24, "I8", 1, 1, nullptr},           {25, "I16", 1, 2, nullptr},
    {26, "I32", 1, 4, nullptr},          {27, "I64", 1, 8, nullptr},
    {29, "IQ1_M", 256, 56, nullptr},     {34, "TQ1_0", 256, 54, nullptr},
    {35, "TQ2_0", 256, 66, nullptr},     {39, "MXFP4", 32, 17, nullptr},
};
// clang-format on

}  // namespace

const GgufType* find_gguf_type(uint32_t id) {
  const auto found = std::ranges::find(types, id, &GgufType::id);
  return found == std::end(types) ? nullptr : &*found;
}

const GgufType* find_gguf_type(const std::string& name) {
  const auto found = std::ranges::find_if(types, [&](const GgufType& type) { return name == type.name; });
  return found == std::end(types) ? nullptr : &*found;
}

std::vector<std::string> readable_gguf_types() {
  std::vector<std::string> names;
  for (const auto& type : types)
    if (type.decode) names.emplace_back(type.name);
  return names;
}

void decode_gguf(const GgufType& type, std::span<const std::byte> data, int64_t offset, std::span<float> out) {
  RUNNER_CHECK(type.decode, "{}", type.name);
  const auto end = offset + std::ssize(out);
  RUNNER_CHECK(
      offset >= 0 && (end + type.block_elements - 1) / type.block_elements * type.block_bytes <= std::ssize(data),
      "[{}, {}) of {} bytes of {}", offset, end, data.size(), type.name);
  const auto* bytes = reinterpret_cast<const uint8_t*>(data.data());
  std::array<float, block_elements_max> whole;
  while (!out.empty()) {
    const int64_t block = offset / type.block_elements, inside = offset % type.block_elements;
    const auto count = std::min(type.block_elements - inside, std::ssize(out));
    const bool all = count == type.block_elements;
    type.decode(bytes + block * type.block_bytes, all ? out.data() : whole.data());
    if (!all) std::copy_n(whole.data() + inside, count, out.data());
    out = out.subspan(static_cast<size_t>(count));
    offset += count;
  }
}

}  // namespace runner
