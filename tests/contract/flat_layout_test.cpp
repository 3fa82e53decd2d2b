// Flat buffers.
#include "strategies/contract/flat_layout.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace runner;

TEST_CASE("parameters start at multiples of 32 elements, and all shards have the same size") {
  ModelSpec spec;
  spec.blocks.push_back(
      {.name = "block", .parameters = {{"tokens", {10, 7}, {}, {}}, {"w", {33}, {}, {}}, {"b", {1}, {}, {}}}});
  for (int shards = 1; shards <= 7; ++shards) {
    auto layout = make_flat_layout(spec.parameters(), {0, 1, 2}, shards);
    CHECK(layout.items[0].offset == 0);
    CHECK(layout.items[1].offset == 96);  // 70 rounded up
    CHECK(layout.items[2].offset == 160);
    CHECK(layout.total == layout.shard * shards);
    CHECK(layout.total >= 161);
    CHECK(layout.total - 161 < 32 * shards + 32);
    CHECK(layout.shard % 32 == 0);
  }
}
