// The order of samples by length: each sample once, similar neighbours, the same on every rank and after a resume.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <random>

#include "runner/data/order.hpp"

using namespace runner;

namespace {

std::vector<int64_t> order_of(const LengthBuckets& buckets, int64_t size, int64_t epoch, int64_t seed) {
  std::vector<int64_t> samples;
  for (int64_t position = 0; position < size; ++position) samples.push_back(buckets.at(epoch, position, seed));
  return samples;
}

}  // namespace

TEST_CASE("samples of similar lengths are neighbours, and each sample comes once in every epoch") {
  std::mt19937 random(7);
  std::lognormal_distribution<double> draw(4, 1);
  for (int64_t size : {1, 31, 32, 33, 4096, 4097, 9001}) {
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < size; ++i) lengths.push_back(static_cast<int64_t>(draw(random)) + 1);
    auto length = [&](int64_t sample) { return lengths[static_cast<size_t>(sample)]; };
    const LengthBuckets buckets(size, length);
    const auto first = order_of(buckets, size, 0, 5);
    auto sorted = first;
    std::ranges::sort(sorted);
    for (int64_t i = 0; i < size; ++i) REQUIRE(sorted[static_cast<size_t>(i)] == i);
    CHECK((size < 33 || order_of(buckets, size, 1, 5) != first));
    CHECK((size < 33 || order_of(buckets, size, 0, 6) != first));
    // Another object, asked in another order, agrees.
    const LengthBuckets other(size, length);
    for (int64_t position = size - 1; position >= 0; position -= 97)
      REQUIRE(other.at(0, position, 5) == first[static_cast<size_t>(position)]);
    if (size != 4096) continue;
    int64_t tokens = 0, padded = 0;
    for (int64_t i = 0; i < size; i += 8) {
      int64_t longest = 0;
      for (int64_t k = i; k < i + 8; ++k) {
        tokens += length(first[static_cast<size_t>(k)]);
        longest = std::max(longest, length(first[static_cast<size_t>(k)]));
      }
      padded += 8 * longest;
    }
    CHECK(static_cast<double>(tokens) / static_cast<double>(padded) > 0.95);
  }
}
