// The size of chunks, in which parameters are gathered and sharded together. Torch-free.
//
// Source: colossalai/zero/gemini/chunk/search_utils.py of ColossalAI v0.2.5.
#pragma once
#include <cstdint>
#include <vector>

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
int64_t wasted(const std::vector<int64_t>& sizes, int64_t size);
/// The size with the least waste; the smallest of several. `sizes`: of the parameters, in the order of their use.
ChunkSize search_chunk_size(const std::vector<int64_t>& sizes, const ChunkSearch& search);

/// The chunk of each parameter, from 0. One of more than the mean size plus three standard deviations has a chunk of its own, and so has one
/// that is larger than a chunk.
std::vector<size_t> chunks_of(const std::vector<int64_t>& sizes, int64_t chunk);
/// Whether a parameter is so large that the search leaves it out.
std::vector<bool> outliers(const std::vector<int64_t>& sizes);

}  // namespace runner
