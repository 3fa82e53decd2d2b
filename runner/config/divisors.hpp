// Divisors, for messages and defaults about what shares out evenly.
#pragma once
#include <cstdint>
#include <vector>

namespace runner {

/// Those of n up to `limit`, ascending; at most `limit` or sqrt(n) divisions.
std::vector<int64_t> divisors(int64_t n, int64_t limit);

}  // namespace runner
