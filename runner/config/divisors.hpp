// Divisors of an integer, for messages and defaults.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace runner {

/// The divisors of n that are at most `limit`, ascending. Needs at most min(limit, sqrt(n)) divisions.
inline std::vector<int64_t> divisors(int64_t n, int64_t limit) {
  std::vector<int64_t> list;
  for (int64_t d = 1; d <= limit && d <= n / d; ++d) {
    if (n % d != 0) continue;
    list.push_back(d);
    if (n / d != d && n / d <= limit) list.push_back(n / d);
  }
  std::sort(list.begin(), list.end());
  return list;
}

}  // namespace runner
