// The gain of AdaScale for known gradients.
#include "strategies/contract/adascale.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

using namespace runner;
using Catch::Matchers::WithinRel;

TEST_CASE("the gain is 1 for equal gradients, and the scale for gradients without anything in common", "[adascale]") {
  for (const int64_t count : {2, 4, 8}) {
    const auto n = static_cast<double>(count);
    CHECK_THAT(AdaScale({}).gain(n * 9, 9, count), WithinRel(1, 1e-6));
    CHECK_THAT(AdaScale({}).gain(n, 1 / n, count), WithinRel(n, 1e-9));
  }
}

TEST_CASE("the gain of (1, 2, 2) and (1, 0, 0) is 5 / 3", "[adascale]") {
  // Their mean is (1, 1, 1). The variance is 10 - 2 * 3, and the squared norm of the true gradient 3 - 4 / 2.
  CHECK_THAT(AdaScale({}).gain(10, 3, 2), WithinRel(5.0 / 3, 1e-12));
  CHECK_THAT(AdaScale({.scale = 4}).gain(10, 3, 2), WithinRel((8.0 + 1) / (8.0 / 4 + 1), 1e-12));
  CHECK(AdaScale({.scale = 1}).gain(10, 3, 2) == 1);
}

TEST_CASE("estimates are averages of those of all steps, of equal weight in the first steps", "[adascale]") {
  AdaScale smooth({.smoothing = 0.9}), last({.smoothing = 0.0});
  for (auto* of : {&smooth, &last}) CHECK_THAT(of->gain(10, 3, 2), WithinRel(5.0 / 3, 1e-12));
  // The second gradients are 3 and 3: variance 0, which counts as 1e-6, and squared norm 9.
  const double variance = (0.9 * 4 + 1e-6) / 1.9, square = (0.9 * 1 + 9) / 1.9;
  CHECK_THAT(smooth.gain(18, 9, 2), WithinRel((variance + square) / (variance / 2 + square), 1e-9));
  CHECK_THAT(last.gain(18, 9, 2), WithinRel(1, 1e-6));
}

TEST_CASE("a loaded state continues", "[adascale]") {
  AdaScale first({}), second({});
  first.gain(10, 3, 2);
  second.load(first.state());
  CHECK(first.gain(30, 7, 2) == second.gain(30, 7, 2));
}

TEST_CASE("after a change of the number of ranks, the variance is that of gradients of fewer rows", "[adascale]") {
  AdaScale changed({.smoothing = 0.999});
  changed.gain(10, 3, 2);  // variance 4, squared norm 1
  // Four ranks of half as many rows: variance 8, squared norm 1. So the averages stay.
  CHECK_THAT(changed.gain(36, 3, 4), WithinRel((8.0 + 1) / (8.0 / 4 + 1), 1e-9));
}
