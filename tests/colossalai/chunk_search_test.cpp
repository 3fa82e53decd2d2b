// The search of the size of chunks, and which parameter is in which chunk.
#include "strategies/colossalai/chunk_search.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace runner;
using Sizes = std::vector<int64_t>;

TEST_CASE("waste is what stays empty at the ends of chunks, also of the last one") {
  CHECK(wasted({3, 5, 4}, 8) == 4);
  CHECK(wasted({3, 5, 4}, 12) == 0);
  CHECK(wasted({3, 5, 4}, 5) == 2 + 0 + 1);
  CHECK(wasted({}, 8) == 0);
}

TEST_CASE("the search takes the size with the least waste, and the smallest of several") {
  const auto found = [](const Sizes& sizes, int64_t smallest, int64_t range, int64_t grids) {
    const auto size = search_chunk_size(sizes, {.smallest = smallest, .range = range, .grids = grids});
    CHECK(size.waste == wasted(sizes, size.elements));
    return size.elements;
  };
  CHECK(found({3, 5, 4}, 1, 20, 20) == 12);
  CHECK(found({3, 5, 4}, 1, 4, 4) == 5);     // the wastes of 5 to 9 are 3, 6, 9, 4 and 6
  CHECK(found({4, 4, 4}, 1, 20, 20) == 4);   // 8 wastes 4, and 12 nothing, as 4
  CHECK(found({100}, 1, 20, 20) == 100);     // a chunk holds the largest parameter
  CHECK(found({3, 5, 4}, 10, 20, 4) == 15);  // sizes are multiples of 5
}

TEST_CASE("parameters fill chunks in order; those far above the others have their own") {
  CHECK(chunks_of({3, 5, 4}, 8) == std::vector<size_t>{0, 0, 1});
  CHECK(chunks_of({3, 5, 4}, 12) == std::vector<size_t>{0, 0, 0});
  CHECK(chunks_of({3, 9, 4}, 8) == std::vector<size_t>{0, 1, 0});
  Sizes sizes(20, 10);
  sizes[7] = 1000;
  const auto apart = outliers(sizes);
  CHECK(apart[7]);
  CHECK(std::ranges::count(apart, true) == 1);
  const auto chunks = chunks_of(sizes, 2000);
  CHECK(std::ranges::count(chunks, chunks[7]) == 1);
  CHECK(chunks[8] == chunks[6]);
}
