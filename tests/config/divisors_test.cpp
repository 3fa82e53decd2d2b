// Divisors of numbers, with edge cases.
#include "runner/config/divisors.hpp"

#include <catch2/catch_test_macros.hpp>

using runner::divisors;
using List = std::vector<int64_t>;

TEST_CASE("divisors come in ascending order, up to a limit, for any size of number") {
  CHECK(divisors(1, 10) == List{1});
  CHECK(divisors(12, 100) == List{1, 2, 3, 4, 6, 12});
  CHECK(divisors(12, 4) == List{1, 2, 3, 4});
  CHECK(divisors(36, 100) == List{1, 2, 3, 4, 6, 9, 12, 18, 36});
  CHECK(divisors(1'000'000'007, 2'000'000'000) == List{1, 1'000'000'007});
  CHECK(divisors(9'223'372'036'854'775'807, 64) == List{1, 7, 49});
}
