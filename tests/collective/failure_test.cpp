// Exact error texts of shared-memory collectives on every rank. Ranks are threads.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>

#include "tests/collective/errors.hpp"
#include "tests/collective/operations.hpp"
#include "tests/support/thread_world.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::Matches;

namespace {

Texts everybody(size_t ranks, const std::string& text) { return Texts(ranks, text); }

at::Tensor floats(int64_t numel) { return torch::ones({numel}); }

}  // namespace

TEST_CASE("the error of ranks that diverge names the operation of each rank", "[collective]") {
  auto diverge = [](const std::function<void(World&)>& most, const std::function<void(World&)>& rank_2) {
    return errors(4, [&](World& world) {
      all_reduce(world.group, floats(1));
      world.rank == 2 ? rank_2(world) : most(world);
    });
  };
  SECTION("different collective") {
    CHECK(diverge([](World& world) { all_reduce(world.group, floats(3 << 20)); },
                  [](World& world) { all_gather(world.group, floats(3 << 20)); }) ==
          everybody(4,
                    "ranks diverged: ranks 0, 1, 3 are in all_reduce #2 (12.0 MiB of float32), rank 2 in all_gather #2 "
                    "(48.0 MiB of float32)"));
  }
  SECTION("different size") {
    CHECK(diverge([](World& world) { all_reduce(world.group, floats(10)); },
                  [](World& world) { all_reduce(world.group, floats(11)); }) ==
          everybody(
              4,
              "ranks diverged: ranks 0, 1, 3 are in all_reduce #2 (40 B of float32), rank 2 in all_reduce #2 (44 B of "
              "float32)"));
  }
  SECTION("different dtype") {
    CHECK(diverge([](World& world) { all_reduce(world.group, floats(10)); },
                  [](World& world) { all_reduce(world.group, floats(10).to(torch::kInt32)); }) ==
          everybody(
              4,
              "ranks diverged: ranks 0, 1, 3 are in all_reduce #2 (40 B of float32), rank 2 in all_reduce #2 (40 B of "
              "int32)"));
  }
  SECTION("different reduction") {
    CHECK(diverge([](World& world) { all_reduce(world.group, floats(10)); },
                  [](World& world) { all_reduce(world.group, floats(10), Op::MAX); }) ==
          everybody(
              4,
              "ranks diverged: ranks 0, 1, 3 are in all_reduce #2 (40 B of float32), rank 2 in all_reduce #2 (40 B of "
              "float32, MAX)"));
  }
  SECTION("different root") {
    CHECK(diverge([](World& world) { broadcast(world.group, floats(10), 0); },
                  [](World& world) { broadcast(world.group, floats(10), 3); }) ==
          everybody(
              4,
              "ranks diverged: ranks 0, 1, 3 are in broadcast #2 (40 B of float32 from rank 0), rank 2 in broadcast #2 "
              "(40 B of float32 from rank 3)"));
  }
  SECTION("different order") {
    auto reduce = [](World& world) { all_reduce(world.group, floats(10)); };
    auto meet = [](World& world) { barrier(world.control); };
    CHECK(
        diverge([&](World& world) { reduce(world), meet(world); }, [&](World& world) { meet(world), reduce(world); }) ==
        everybody(4, "ranks diverged: ranks 0, 1, 3 are in all_reduce #2 (40 B of float32), rank 2 in barrier #2"));
  }
  SECTION("in a subgroup, with the rank numbers of the world") {
    auto texts = errors(4, [](World& world) {
      auto high = world.make_subgroup({3, 1}, "high");
      if (high) all_reduce(high, floats(world.rank));
    });
    std::string text =
        "ranks diverged: rank 3 is in all_reduce #1 (12 B of float32), rank 1 in all_reduce #1 (4 B of float32)";
    CHECK(texts == Texts{"", text, "", text});
  }
}

TEST_CASE("a group that has failed keeps failing with its first error", "[collective]") {
  auto texts = errors(2, [](World& world) {
    try {
      all_reduce(world.group, floats(world.rank + 1));
    } catch (const c10::DistBackendError&) {
      all_reduce(world.group, floats(1));  // both ranks make the same call
    }
  });
  CHECK(texts ==
        everybody(2,
                  "ranks diverged: rank 0 is in all_reduce #1 (4 B of float32), rank 1 in all_reduce #1 (8 B of "
                  "float32)"));
}

TEST_CASE("an exception on one rank ends the wait of the others, and is the one that is rethrown", "[collective]") {
  Texts woken(3);
  auto body = [&](World& world) {
    if (world.rank == 1) throw std::runtime_error("my own trouble");
    try {
      all_reduce(world.group, floats(1));
    } catch (const c10::DistBackendError& error) {
      woken[static_cast<size_t>(world.rank)] = error.what_without_backtrace();
      throw;
    }
  };
  CHECK_THROWS_WITH(run_ranks(3, body), "my own trouble");
  CHECK(woken == Texts{"rank 1 gave up", "", "rank 1 gave up"});
}

TEST_CASE("a timeout names the late ranks and their last calls", "[collective]") {
  SECTION("still in an earlier call") {
    auto texts = errors(
        3,
        [](World& world) {
          all_reduce(world.group, floats(1));
          if (world.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(900));
          all_gather(world.group, floats(2));
        },
        std::chrono::milliseconds(300));
    CHECK_THAT(
        texts[0],
        Matches(
            R"(rank [02] waited 0\.\d+ s in all_gather #2 \(24 B of float32\): rank 1 is still at all_reduce #1 \(4 B of float32\))"));
    CHECK(texts == everybody(3, texts[0]));
  }
  SECTION("never called") {
    auto texts = errors(
        2,
        [](World& world) {
          if (world.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(900));
          auto pair = world.make_subgroup({0, 1}, "pair");
          all_reduce(pair, floats(1));
        },
        std::chrono::milliseconds(300));
    CHECK_THAT(texts[0], Matches(R"(rank 0 waited 0\.\d+ s in all_reduce #1 \(4 B of float32\): rank 1 never joined)"));
    CHECK(texts[1] == texts[0]);
  }
  SECTION("several ranks") {
    auto texts = errors(
        4,
        [](World& world) {
          all_reduce(world.group, floats(1));
          if (world.rank > 0) std::this_thread::sleep_for(std::chrono::milliseconds(900));
          all_gather(world.group, floats(2));
        },
        std::chrono::milliseconds(300));
    CHECK_THAT(
        texts[0],
        Matches(
            R"(rank 0 waited 0\.\d+ s in all_gather #2 \(32 B of float32\): ranks 1-3 are still at all_reduce #1 \(4 B of float32\))"));
  }
}

TEST_CASE("an unsupported call is refused by name, before any other rank sees it", "[collective]") {
  auto texts = [](const std::function<void(World&)>& body) {
    auto all = errors(2, [&](World& world) {
      try {
        body(world);
      } catch (...) {
        all_reduce(world.group, floats(1));  // the group still works
        throw;
      }
    });
    CHECK(all[0] == all[1]);
    return all[0];
  };
  const std::string dtypes =
      "shared-memory collectives reduce float64, float32, bfloat16, float16, int64, int32, uint8 and bool, not ";
  CHECK(texts([](World& world) { all_reduce(world.group, torch::ones({3}, torch::kInt8)); }) == dtypes + "int8");
  CHECK(texts([](World& world) { all_reduce(world.group, torch::ones({0}, torch::kComplexFloat)); }) ==
        dtypes + "complex64");
  const std::string operations = "shared-memory collectives reduce with SUM, MAX, MIN and PRODUCT, not ";
  CHECK(texts([](World& world) { all_reduce(world.group, floats(3), Op::AVG); }) ==
        operations + "AVG (divide after SUM)");
  CHECK(texts([](World& world) { all_reduce(world.group, floats(3), Op::BXOR); }) == operations + "BXOR");
  CHECK(texts([](World& world) {
          all_reduce(world.group, torch::ones({3, 3}).t());
        }) == "shared-memory collectives take contiguous CPU tensors");
  CHECK(texts([](World& world) {
          auto input = floats(3), output = floats(5);
          world.group->_allgather_base(output, input);
        }) == "all_gather: the output must hold 2 times the input");
  CHECK(texts([](World& world) {
          auto input = floats(5), output = floats(3);
          world.group->_reduce_scatter_base(output, input);
        }) == "reduce_scatter: the input must hold 2 times the output");
  CHECK(texts([](World& world) {
          auto input = floats(4), output = floats(4);
          std::vector<int64_t> splits{1, 2};
          world.group->alltoall_base(output, input, splits, splits);
        }) == "all_to_all: splits of 2 ranks that add up to the tensors");
}

TEST_CASE("more ranks or groups than the segment can contain are refused, and a solution is named", "[collective]") {
  CHECK_THROWS_WITH(run_ranks(1025, [](World&) {}),
                    "process_group_backend \"shm\" joins up to 1024 ranks of a host, not 1025; take \"gloo\"");
  CHECK_THROWS_WITH(run_ranks(1,
                              [](World& world) {
                                for (int i = 0; i < 64; ++i) world.make_subgroup({0}, "another");
                              }),
                    "process_group_backend \"shm\" has room for 64 process groups of all ranks of a host, or for more "
                    "smaller ones; the group \"another\" does not fit any more; take \"gloo\"");
}
