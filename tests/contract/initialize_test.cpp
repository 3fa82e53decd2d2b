// Initial values depend only on seed, name and position. They have the same bits on every machine.
#include "runner/base/hash.hpp"
#include "strategies/contract/initialize.hpp"

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>
#include <numbers>
#include <vector>

using namespace runner;

namespace {
std::vector<float> values(const std::string& name, int64_t seed, int64_t offset, size_t count) {
  std::vector<float> out(count);
  initialize_slice({name, {1 << 20}, {Init::Kind::normal, 0.02}, {}}, seed, offset, out);
  return out;
}
}  // namespace

TEST_CASE("any part of a parameter has the same values as in the complete parameter") {
  auto whole = values("w", 1, 0, 1000);
  for (int64_t begin : {0, 1, 2, 333, 998})
    for (size_t count : {size_t{1}, size_t{2}, size_t{7}, size_t{500}}) {
      if (begin + count > 1000) continue;
      auto piece = values("w", 1, begin, count);
      CHECK(piece == std::vector<float>(whole.begin() + begin, whole.begin() + begin + static_cast<int64_t>(count)));
    }
  CHECK(values("w", 2, 0, 1000) != whole);
  CHECK(values("v", 1, 0, 1000) != whole);
}

TEST_CASE("values are normal with the requested standard deviation") {
  auto sample = values("w", 5, 0, 1 << 18);
  double mean = 0, square = 0, fourth = 0;
  for (float value : sample) {
    mean += value;
    square += double(value) * value;
    fourth += std::pow(double(value), 4);
  }
  double n = static_cast<double>(sample.size());
  double variance = square / n;
  CHECK_THAT(mean / n, Catch::Matchers::WithinAbs(0.0, 2e-4));
  CHECK_THAT(std::sqrt(variance), Catch::Matchers::WithinRel(0.02, 5e-3));
  CHECK_THAT(fourth / n / (variance * variance), Catch::Matchers::WithinRel(3.0, 2e-2));  // kurtosis
}

TEST_CASE("values follow the Box-Muller transform of the random bits within a few units in the last place") {
  auto sample = values("w", 5, 0, 1 << 14);
  uint64_t key = name_key(5, "w");
  for (size_t pair = 0; pair < sample.size() / 2; ++pair) {
    uint64_t bits = mix64(key + pair * 0x9e3779b97f4a7c15ull);
    double u = (static_cast<double>(bits >> 40) + 0.5) * 0x1p-24,
           v = (static_cast<double>((bits >> 8) & 0xffffff) + 0.5) * 0x1p-24;
    double radius = 0.02 * std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * v;
    CHECK_THAT(sample[2 * pair], Catch::Matchers::WithinAbs(radius * std::cos(angle), 2e-8));
    CHECK_THAT(sample[2 * pair + 1], Catch::Matchers::WithinAbs(radius * std::sin(angle), 2e-8));
  }
}

TEST_CASE("the bits of initial weights do not change between versions") {
  auto sample = values("blocks.0.attention.qkv.weight", 1234, 12'345, 4);
  std::vector<uint32_t> bits;
  for (float value : sample) bits.push_back(std::bit_cast<uint32_t>(value));
  CHECK(bits == std::vector<uint32_t>{0xbbe910a1, 0xbb51af00, 0xbc06c9d6, 0xbab098dd});
}
