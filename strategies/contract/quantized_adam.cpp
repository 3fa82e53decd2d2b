#include "strategies/contract/quantized_adam.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace runner {

namespace {

/// The middles of `count` equal parts of [0.1, 1], as torch.linspace rounds its bounds.
std::vector<float> middles(int count) {
  std::vector<float> bounds, list;
  const float step = (1.0f - 0.1f) / static_cast<float>(count);
  for (int i = 0; i <= count; ++i)
    bounds.push_back(i < (count + 1) / 2 ? 0.1f + step * static_cast<float>(i)
                                         : 1.0f - step * static_cast<float>(count - i));
  for (int i = 0; i < count; ++i)
    list.push_back((bounds[static_cast<size_t>(i)] + bounds[static_cast<size_t>(i) + 1]) / 2.0f);
  return list;
}

/// Seven powers of ten. Each has twice as many values as the next lower one.
QuantizedMap make_map(bool with_signs) {
  constexpr int powers = 7;
  std::vector<float> values{0.0f, 1.0f};
  for (int i = 0; i < powers; ++i) {
    const auto power = static_cast<float>(std::pow(10.0, i - (powers - 1)));
    for (const float middle : middles(1 << (with_signs ? i : i + 1))) {
      values.push_back(power * middle);
      if (with_signs) values.push_back(-power * middle);
    }
  }
  std::ranges::sort(values);
  QuantizedMap map{};
  std::ranges::copy(values, map.begin());
  return map;
}

struct Quantizer {
  const QuantizedMap& map;
  std::array<float, 255> bounds;
  /// For the upper half of a float's bits: the code of the lowest float with these bits.
  std::vector<uint8_t> lowest;
  explicit Quantizer(const QuantizedMap& of) : map(of), bounds(bounds_of(of)), lowest(1 << 16) {
    for (uint32_t upper = 0; upper < lowest.size(); ++upper) {
      const bool negative = (upper & 0x8000) != 0;
      const float value = std::bit_cast<float>(upper << 16 | (negative ? 0xffffu : 0u));
      lowest[upper] = static_cast<uint8_t>(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin());
    }
  }

  uint8_t code(float value) const {
    size_t code = lowest[std::bit_cast<uint32_t>(value) >> 16];
    while (code < bounds.size() && value > bounds[code]) ++code;
    return static_cast<uint8_t>(code);
  }
  /// Returns the scale.
  float quantize(const float* values, uint8_t* codes, int64_t count) const {
    float most = 0;
    for (int64_t i = 0; i < count; ++i) most = std::max(most, std::abs(values[i]));
    if (most == 0) most = 1;
    for (int64_t i = 0; i < count; ++i) codes[i] = code(values[i] / most);
    return most;
  }
};

const void* at(const void* data, DType dtype, int64_t element) {
  return static_cast<const char*>(data) + element * bytes_of(dtype);
}

}  // namespace

const QuantizedMap& signed_map() {
  static const QuantizedMap map = make_map(true);
  return map;
}

const QuantizedMap& unsigned_map() {
  static const QuantizedMap map = make_map(false);
  return map;
}

std::array<float, 255> bounds_of(const QuantizedMap& map) {
  std::array<float, 255> bounds{};
  for (size_t i = 0; i < bounds.size(); ++i) bounds[i] = (map[i] + map[i + 1]) / 2;
  return bounds;
}

QuantizedSpan QuantizedSpan::cut(int64_t begin, int64_t elements) const {
  QuantizedSpan piece = *this;
  piece.parameter += begin;
  piece.gradient = at(gradient, gradient_dtype, begin);
  piece.exp_avg += begin;
  piece.exp_avg_sq += begin;
  piece.exp_avg_scale += begin / state_block;
  piece.exp_avg_sq_scale += begin / state_block;
  piece.count = elements;
  return piece;
}

void quantized_adam(const UpdateSettings& settings, const QuantizedSpan& span) {
  static const Quantizer first(signed_map()), second(unsigned_map());
  std::array<float, state_block> gradient{}, averages{}, squares{};
  for (int64_t begin = 0; begin < span.count; begin += state_block) {
    const QuantizedSpan block = span.cut(begin, std::min(state_block, span.count - begin));
    widen_gradient(block.gradient, block.gradient_dtype, gradient.data(), block.count);
    for (int64_t i = 0; i < block.count; ++i) {
      const auto k = static_cast<size_t>(i);
      averages[k] = first.map[block.exp_avg[i]] * *block.exp_avg_scale;
      squares[k] = second.map[block.exp_avg_sq[i]] * *block.exp_avg_sq_scale;
    }
    UpdateSpan values{.parameter = block.parameter,
                      .first = averages.data(),
                      .second = squares.data(),
                      .gradient = gradient.data(),
                      .count = block.count};
    host_update(settings, values);
    *block.exp_avg_scale = first.quantize(averages.data(), block.exp_avg, block.count);
    *block.exp_avg_sq_scale = second.quantize(squares.data(), block.exp_avg_sq, block.count);
  }
}

}  // namespace runner
