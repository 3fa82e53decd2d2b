// The size of chunks, in which parameters are gathered and sharded together. Torch-free.
//
// Source: colossalai/zero/gemini/chunk/search_utils.py of ColossalAI v0.2.5.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "runner/base/round_up.hpp"

namespace runner {

/// Numbers of elements.
struct ChunkSearch {
  int64_t smallest = 32 << 20;  ///< chunks are not smaller
  int64_t range = 64 << 20;     ///< sizes from the smallest one up to `range` more are tried
  int64_t grids = 4096;         ///< in so many equal steps
};

struct ChunkSize {
  int64_t elements = 0;  ///< of each chunk
  int64_t waste = 0;     ///< elements of all chunks that no parameter uses
};

/// Elements at the ends of chunks of `size` elements that stay empty, also of the last one. Parameters are put into chunks in order, and a
/// parameter that does not fit begins the next chunk.
inline int64_t wasted(const std::vector<int64_t>& sizes, int64_t size) {
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

/// The size with the least waste; the smallest of several. `sizes`: of the parameters, in the order of their use.
inline ChunkSize search_chunk_size(const std::vector<int64_t>& sizes, const ChunkSearch& search) {
  const int64_t step = std::max<int64_t>(1, (search.range + search.grids - 1) / search.grids);
  const int64_t largest = sizes.empty() ? 1 : std::ranges::max(sizes);
  const int64_t first = round_up(std::max(search.smallest, largest), step);
  ChunkSize best{.elements = first, .waste = wasted(sizes, first)};
  for (int64_t size = first + step; size <= first + search.range && best.waste > 0; size += step)
    if (const int64_t waste = wasted(sizes, size); waste < best.waste) best = {.elements = size, .waste = waste};
  return best;
}

/// Whether a parameter is so large that the search leaves it out.
inline std::vector<bool> outliers(const std::vector<int64_t>& sizes) {
  const auto count = static_cast<double>(sizes.size());
  double sum = 0, squares = 0;
  for (const int64_t size : sizes) sum += static_cast<double>(size);
  for (const int64_t size : sizes) squares += std::pow(static_cast<double>(size) - sum / count, 2);
  const double limit = sum / count + 3 * std::sqrt(squares / count);
  std::vector<bool> list;
  for (const int64_t size : sizes) list.push_back(static_cast<double>(size) > limit);
  return list;
}

/// The chunk of each parameter, from 0. One of more than the mean size plus three standard deviations has a chunk of
/// its own, and so has one that is larger than a chunk.
inline std::vector<size_t> chunks_of(const std::vector<int64_t>& sizes, int64_t chunk) {
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
