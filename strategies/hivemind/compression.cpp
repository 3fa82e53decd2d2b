#include "strategies/hivemind/compression.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "runner/base/half.hpp"

namespace runner::swarm {

namespace {

constexpr size_t block_values = 4096;

template <typename Element>
Bytes bytes_of_values(std::span<const Element> values) {
  const auto* first = reinterpret_cast<const uint8_t*>(values.data());
  return {first, first + values.size_bytes()};
}

Bytes compress_half(std::span<const float> values) {
  static constexpr float largest = 65504;
  std::vector<uint16_t> halves(values.size());
  std::ranges::transform(values, halves.begin(),
                         [](float value) { return float_to_half(std::clamp(value, -largest, largest)); });
  return bytes_of_values<uint16_t>(halves);
}

/// The codebook, and then an index for each value.
Bytes compress_uniform(std::span<const float> values) {
  double sum = 0, squares = 0;
  for (const float value : values) sum += value;
  const double mean = values.empty() ? 0 : sum / static_cast<double>(values.size());
  for (const float value : values) squares += (value - mean) * (value - mean);
  const double sigma = values.size() > 1 ? std::sqrt(squares / static_cast<double>(values.size() - 1)) : 0;
  const double step = sigma > 0 ? 6 * sigma / 256 : 1;
  std::array<double, 256> sums = {};
  std::array<size_t, 256> counts = {};
  Bytes indices(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const double at = std::clamp(std::nearbyint((values[i] - mean) / step) + 128, 0.0, 255.0);
    indices[i] = static_cast<uint8_t>(at);
    sums[indices[i]] += values[i];
    ++counts[indices[i]];
  }
  ByteWriter out;
  for (size_t i = 0; i < 256; ++i)
    out.number(static_cast<float>(counts[i] > 0 ? sums[i] / static_cast<double>(counts[i]) : 0.0));
  return out.bytes(indices).take();
}

Bytes compress_blocks(std::span<const float> values) {
  ByteWriter out;
  for (size_t begin = 0; begin < values.size(); begin += block_values) {
    const auto block = values.subspan(begin, std::min(block_values, values.size() - begin));
    float largest = 0;
    for (const float value : block) largest = std::max(largest, std::abs(value));
    out.number(largest);
    Bytes steps(block.size());
    for (size_t i = 0; i < block.size() && largest > 0; ++i)
      steps[i] = static_cast<uint8_t>(static_cast<int8_t>(std::nearbyint(block[i] / largest * 127.0f)));
    out.bytes(steps);
  }
  return out.take();
}

std::vector<float> decompress_blocks(ByteReader& in, size_t count) {
  std::vector<float> values;
  values.reserve(count);
  while (values.size() < count) {
    const auto largest = in.number<float>();
    for (const uint8_t step : in.take(std::min(block_values, count - values.size())))
      values.push_back(static_cast<float>(static_cast<int8_t>(step)) * (largest / 127.0f));
  }
  return values;
}

}  // namespace

Compression compression_of(const std::string& name) {
  static const std::map<std::string, Compression> kinds = {{"none", Compression::none},
                                                           {"float16", Compression::float16},
                                                           {"uniform_8bit", Compression::uniform_8bit},
                                                           {"blockwise_8bit", Compression::blockwise_8bit}};
  return kinds.at(name);
}

Bytes compress(Compression kind, std::span<const float> values) {
  switch (kind) {
    case Compression::none:
      return bytes_of_values(values);
    case Compression::float16:
      return compress_half(values);
    case Compression::uniform_8bit:
      return compress_uniform(values);
    case Compression::blockwise_8bit:
      return compress_blocks(values);
  }
  throw std::logic_error("no such compression");
}

std::vector<float> decompress(Compression kind, std::span<const uint8_t> bytes, size_t count) {
  ByteReader in(bytes);
  std::vector<float> values;
  switch (kind) {
    case Compression::none: {
      values.resize(count);
      const auto raw = in.take(count * sizeof(float));
      if (count > 0) std::memcpy(values.data(), raw.data(), raw.size());
      break;
    }
    case Compression::float16: {
      values.reserve(count);
      for (size_t i = 0; i < count; ++i) values.push_back(half_to_float(in.number<uint16_t>()));
      break;
    }
    case Compression::uniform_8bit: {
      std::array<float, 256> codebook;
      for (float& value : codebook) value = in.number<float>();
      values.reserve(count);
      for (const uint8_t index : in.take(count)) values.push_back(codebook[index]);
      break;
    }
    case Compression::blockwise_8bit:
      values = decompress_blocks(in, count);
      break;
  }
  in.end();
  return values;
}

}  // namespace runner::swarm
