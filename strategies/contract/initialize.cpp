#include "strategies/contract/initialize.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace runner {

uint64_t name_key(int64_t seed, const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (unsigned char c : name) hash = (hash ^ c) * 0x100000001b3ull;
  return mix64(hash ^ mix64(static_cast<uint64_t>(seed)));
}

namespace {

/// The two normal deviates of pair `index` under `key`.
std::pair<float, float> normal_pair(uint64_t key, uint64_t index) {
  uint64_t bits = mix64(key + index * 0x9e3779b97f4a7c15ull);
  // 24 bits each, centred in their cells: never 0, so the logarithm is finite.
  float u = (static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f;
  float v = (static_cast<float>((bits >> 8) & 0xffffff) + 0.5f) * 0x1p-24f;
  float radius = std::sqrt(-2.0f * std::log(u));
  float angle = 2.0f * std::numbers::pi_v<float> * v;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace

void initialize_slice(const ParameterSpec& parameter, int64_t seed, int64_t offset, std::span<float> out) {
  if (parameter.init.kind != Init::Kind::normal) {
    std::fill(out.begin(), out.end(), parameter.init.kind == Init::Kind::ones ? 1.0f : 0.0f);
    return;
  }
  uint64_t key = name_key(seed, parameter.name);
  auto std_deviation = static_cast<float>(parameter.init.std);
  auto begin = static_cast<uint64_t>(offset);
  for (size_t i = 0; i < out.size();) {
    uint64_t element = begin + i;
    auto [even, odd] = normal_pair(key, element / 2);
    if (element % 2 == 0) {
      out[i++] = even * std_deviation;
      if (i < out.size()) out[i++] = odd * std_deviation;
    } else {
      out[i++] = odd * std_deviation;
    }
  }
}

}  // namespace runner
