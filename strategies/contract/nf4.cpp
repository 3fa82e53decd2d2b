#include "strategies/contract/nf4.hpp"

#include <algorithm>
#include <cmath>

namespace runner {

const std::array<float, 16> nf4_levels = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

namespace {

/// The greatest values that are rounded to the lower one of two neighbours.
template <size_t count>
std::array<float, count - 1> midpoints(const std::array<float, count>& levels) {
  std::array<float, count - 1> between;
  for (size_t i = 0; i + 1 < count; ++i)
    between[i] = static_cast<float>((static_cast<double>(levels[i]) + levels[i + 1]) / 2);
  return between;
}

/// The code of the level that is nearest to `value`.
template <size_t count>
uint8_t nearest_code(const std::array<float, count>& between, float value) {
  return static_cast<uint8_t>(std::ranges::lower_bound(between, value) - between.begin());
}

float largest(std::span<const float> values) {
  float most = 0;
  for (float value : values) most = std::max(most, std::abs(value));
  return most;
}

}  // namespace

void nf4_quantize(std::span<const float> values, std::span<uint8_t> packed, std::span<float> factors) {
  static const auto between = midpoints(nf4_levels);
  std::ranges::fill(packed, uint8_t{0});
  for (size_t begin = 0, block = 0; begin < values.size(); begin += nf4_block, ++block) {
    const auto own = values.subspan(begin, std::min<size_t>(nf4_block, values.size() - begin));
    const float factor = factors[block] = largest(own), inverse = factor > 0 ? 1 / factor : 0;
    for (size_t i = 0; i < own.size(); ++i) {
      const uint8_t code = nearest_code(between, own[i] * inverse);
      packed[(begin + i) / 2] |= static_cast<uint8_t>((begin + i) % 2 == 0 ? code << 4 : code);
    }
  }
}

void nf4_dequantize(std::span<const uint8_t> packed, std::span<const float> factors, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const uint8_t byte = packed[i / 2];
    out[i] = nf4_levels[i % 2 == 0 ? byte >> 4 : byte & 15] * factors[i / nf4_block];
  }
}

Nf4Factors::Nf4Factors(std::span<const float> factors) {
  static const auto between = bounds_of(signed_map());
  double sum = 0;
  for (float factor : factors) sum += factor;
  mean = static_cast<float>(sum / static_cast<double>(std::max<size_t>(1, factors.size())));
  std::vector<float> centred(factors.size());
  for (size_t i = 0; i < factors.size(); ++i) centred[i] = factors[i] - mean;
  for (size_t begin = 0; begin < centred.size(); begin += nf4_group) {
    const auto own = std::span(centred).subspan(begin, std::min<size_t>(nf4_group, centred.size() - begin));
    const float most = largest(own), inverse = most > 0 ? 1 / most : 0;
    groups.push_back(most);
    for (float value : own) codes.push_back(nearest_code(between, value * inverse));
  }
}

}  // namespace runner
