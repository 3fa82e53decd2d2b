// Initial values depend on seed, name and position only.
#include "strategies/contract/initialize.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>
#include <vector>

using namespace runner;

namespace {
std::vector<float> values(const std::string& name, int64_t seed, int64_t offset, size_t count) {
  std::vector<float> out(count);
  initialize_slice({name, {1 << 20}, {Init::Kind::normal, 0.02}, {}}, seed, offset, out);
  return out;
}
}  // namespace

TEST_CASE("any cut of a parameter gives the same values as the whole") {
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

TEST_CASE("values are normal with the asked deviation") {
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
