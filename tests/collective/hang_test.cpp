// Ranks that stop or stay away are named long before the timeout of collectives.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/collective/processes.hpp"

using namespace runner::testing;
using Catch::Matchers::EndsWith;

namespace {

/// Rank 0 ends last, so over shared memory it may also see that another one has ended.
void check_silence(RankProcesses& ranks, const std::vector<size_t>& others, int stopped) {
  const auto verdict =
      fmt::format("rank {} has not answered for 1.00 s: the process is stopped, or its host hangs\n", stopped);
  for (size_t rank : others) {
    const auto text = ranks.finish(rank);
    if (rank == 0)
      CHECK_THAT(text, EndsWith(verdict));
    else
      CHECK(text == "running\n" + verdict);
    CHECK(ranks.code(rank) == 1);
  }
}

}  // namespace

TEST_CASE("a rank whose process is stopped ends the others, with its number", "[collective][hang]") {
  std::string backend = GENERATE("shm", "gloo");
  RankProcesses ranks(3, "for_ever", {{"BACKEND", backend}, {"LATE_MS", "1000"}});
  for (size_t rank : {0, 1, 2}) REQUIRE(ranks.said(rank, "running"));
  ranks.stop(2);
  check_silence(ranks, {0, 1}, 2);
}

TEST_CASE("a rank that is stopped in a transfer is named, too", "[collective][channel][hang]") {
  std::string backend = GENERATE("shm", "gloo");
  RankProcesses ranks(3, "transfer_for_ever", {{"BACKEND", backend}, {"LATE_MS", "1000"}});
  for (size_t rank : {0, 1, 2}) REQUIRE(ranks.said(rank, "running"));
  ranks.stop(1);
  check_silence(ranks, {0, 2}, 1);
}

TEST_CASE("rank 0 tells for which rank the others wait, and the run goes on", "[collective][hang]") {
  std::string backend = GENERATE("shm", "gloo");
  RankProcesses ranks(3, "stay_away", {{"BACKEND", backend}, {"LATE_MS", "1000"}});
  CHECK(ranks.said(0, "ranks 0, 2 wait for rank 1, whose last call is all_reduce #1 (20 B of float32) of world"));
  ranks.kill(1);
  for (size_t rank : {0, 2}) ranks.finish(rank);
}
