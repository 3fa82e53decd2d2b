// Divisors of an integer, for messages and defaults.
#pragma once
#include <cstdint>
#include <vector>

namespace runner {

/// The divisors of n that are at most `limit`, ascending. Needs at most min(limit, sqrt(n)) divisions.
std::vector<int64_t> divisors(int64_t n, int64_t limit);

}  // namespace runner
