#include "strategies/colossalai/chunk_search.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runner/base/round_up.hpp"

namespace runner {

int64_t wasted(const std::vector<int64_t>& sizes, int64_t size) {
  int64_t waste = 0, left = 0;  // elements that are free in the chunk that is being filled
  for (const int64_t elements : sizes) {
    if (elements > left) {
      waste += left;
      left = size;
    }
    left -= elements;
  }
  return waste + left;
}

ChunkSize search_chunk_size(const std::vector<int64_t>& sizes, const ChunkSearch& search) {
  const int64_t step = std::max<int64_t>(1, (search.range + search.grids - 1) / search.grids);
  const int64_t largest = sizes.empty() ? 1 : std::ranges::max(sizes);
  const int64_t first = round_up(std::max(search.smallest, largest), step);
  ChunkSize best{.elements = first, .waste = wasted(sizes, first)};
  for (int64_t size = first + step; size <= first + search.range && best.waste > 0; size += step)
    if (const int64_t waste = wasted(sizes, size); waste < best.waste) best = {.elements = size, .waste = waste};
  return best;
}

std::vector<bool> outliers(const std::vector<int64_t>& sizes) {
  const auto count = static_cast<double>(sizes.size());
  double sum = 0, squares = 0;
  for (const int64_t size : sizes) sum += static_cast<double>(size);
  for (const int64_t size : sizes) squares += std::pow(static_cast<double>(size) - sum / count, 2);
  const double limit = sum / count + 3 * std::sqrt(squares / count);
  std::vector<bool> list;
  for (const int64_t size : sizes) list.push_back(static_cast<double>(size) > limit);
  return list;
}

std::vector<size_t> chunks_of(const std::vector<int64_t>& sizes, int64_t chunk) {
  const auto apart = outliers(sizes);
  std::vector<size_t> chunks;
  size_t next = 0, open = 0;
  int64_t left = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (apart[i] || sizes[i] > chunk) {
      chunks.push_back(next++);
      continue;
    }
    if (sizes[i] > left) {
      open = next++;
      left = chunk;
    }
    left -= sizes[i];
    chunks.push_back(open);
  }
  return chunks;
}

}  // namespace runner
