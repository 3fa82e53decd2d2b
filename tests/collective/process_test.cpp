// Collectives between processes: equal bits over a memfd, equal values within rounding over Gloo, and ranks that are
// killed or never start.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

#include "tests/collective/processes.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::Matches;

namespace {

std::set<std::string> entries(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

}  // namespace

TEST_CASE("processes over shared memory get the same bits as threads", "[collective]") {
  int size = GENERATE(2, 3);
  RankProcesses ranks(size, "check");
  for (size_t rank = 0; rank < static_cast<size_t>(size); ++rank) {
    CHECK(ranks.finish(rank) == "checked\n");
    CHECK(ranks.code(rank) == 0);
  }
}

TEST_CASE("Gloo on 127.0.0.1 gives the same results within rounding", "[collective]") {
  RankProcesses ranks(3, "check", {{"BACKEND", "gloo"}});
  for (size_t rank = 0; rank < 3; ++rank) CHECK(ranks.finish(rank) == "checked\n");
}

TEST_CASE("small sums of processes have the same bits over shared memory and over Gloo", "[collective]") {
  int size = GENERATE(2, 5);
  std::string backend = GENERATE("shm", "gloo");
  RankProcesses ranks(size, "small_sums", {{"BACKEND", backend}});
  for (size_t rank = 0; rank < static_cast<size_t>(size); ++rank) CHECK(ranks.finish(rank) == "checked\n");
}

TEST_CASE("all other ranks report at once a rank that is killed in a collective, and the group leaves nothing behind",
          "[collective]") {
  auto shared = entries("/dev/shm"), open = entries("/proc/self/fd");
  {
    RankProcesses ranks(4, "for_ever");
    for (size_t rank = 0; rank < 4; ++rank) REQUIRE(ranks.said(rank, "running"));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    auto begun = std::chrono::steady_clock::now();
    ranks.kill(2);
    auto text = ranks.finish(0);
    CHECK_THAT(text,
               Matches(fmt::format(
                   "running\nrank 2 \\(pid {}\\) is gone while rank [013] waits in all_reduce #\\d+ \\(4\\.00 MiB "
                   "of float32\\)\n",
                   ranks.pid(2))));
    for (size_t rank : {1, 3}) CHECK(ranks.finish(rank) == text);
    for (size_t rank : {0, 1, 3}) CHECK(ranks.code(rank) == 1);
    CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(5));
    ranks.finish(2);
  }
  CHECK(entries("/dev/shm") == shared);
  CHECK(entries("/proc/self/fd") == open);
}

TEST_CASE("the rendezvous has a deadline, and its error names the missing ranks", "[collective]") {
  RankProcesses ranks(4, "check", {{"RENDEZVOUS_S", "3"}}, 2);
  CHECK(ranks.finish(0) ==
        fmt::format("rendezvous at 127.0.0.1:{}: ranks 2, 3 of 4 did not connect within 3.00 s\n", ranks.port()));
  CHECK(ranks.code(0) == 1);
  ranks.finish(1);  // the text is the same, unless rank 0 and its store ended first
  CHECK(ranks.code(1) == 1);
}

TEST_CASE("Gloo ranks that wait in different collectives are reported long before the timeout", "[collective]") {
  struct Case {
    const char* mode;
    const char* text;
  };
  auto [mode, text] = GENERATE(
      Case{"another_kind",
           "rank 0 is in all_reduce #2 (4.00 MiB of float32), rank 1 in all_gather #2 (8.00 MiB of float32)"},
      Case{"another_size",
           "rank 0 is in all_reduce #1 (2.00 MiB of float32), rank 1 in all_reduce #1 (4.00 MiB of float32)"},
      Case{"another_group",
           "rank 0 is in all_reduce #1 (36 B of float32) of world, rank 1 in all_gather #1 (24 B of float32) of "
           "control"},
      Case{"another_dtype", "rank 0 is in all_reduce #1 (20 B of float32), rank 1 in all_reduce #1 (20 B of int32)"});
  RankProcesses ranks(2, mode, {{"BACKEND", "gloo"}});
  for (size_t rank : {0, 1}) {
    CHECK(ranks.finish(rank) == fmt::format("ranks diverged: {}\n", text));
    CHECK(ranks.code(rank) == 1);
  }
}

TEST_CASE("the other ranks wait for a rank that is only slow", "[collective]") {
  RankProcesses ranks(2, "slow", {{"BACKEND", "gloo"}});
  for (size_t rank : {0, 1}) CHECK(ranks.finish(rank) == "together again\n");
}

TEST_CASE("processes on a ring send messages of up to 64 MiB to both neighbours, over shared memory and Gloo",
          "[collective][channel]") {
  std::string backend = GENERATE("shm", "gloo");
  RankProcesses ranks(3, "transfers", {{"BACKEND", backend}});
  for (size_t rank = 0; rank < 3; ++rank) {
    CHECK(ranks.finish(rank) == "checked\n");
    CHECK(ranks.code(rank) == 0);
  }
}

TEST_CASE("a rank names the rank that is killed, and the channel in which it waits for it", "[collective][channel]") {
  struct Case {
    const char *mode, *backend, *text;
  };
  auto [mode, backend, text] = GENERATE(
      Case{
          "transfer_for_ever", "shm",
          "rank 1 \\(pid {}\\) is gone while rank 0 waits in transfer #\\d+ \\(4\\.00 MiB of float32\\) of activations "
          "(0 to 1|1 to 0)"},
      Case{"wait_for_message", "shm",
           "rank 1 \\(pid {}\\) is gone while rank 0 waits in transfer #2 \\(20 B of float32\\) of activations 1 to 0"},
      Case{"wait_for_message", "gloo", "[^]*Connection (closed|reset) by peer[^]*"});
  RankProcesses ranks(2, mode, {{"BACKEND", backend}});
  REQUIRE(ranks.said(0, "running"));
  auto begun = std::chrono::steady_clock::now();
  ranks.kill(1);
  CHECK_THAT(ranks.finish(0), Matches("running\n" + fmt::format(fmt::runtime(text), ranks.pid(1)) + "\n"));
  CHECK(ranks.code(0) == 1);
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(5));
}

TEST_CASE("Gloo ranks that expect messages in another order than they come are reported long before the timeout",
          "[collective][channel]") {
  RankProcesses ranks(2, "swapped_messages", {{"BACKEND", "gloo"}});
  for (size_t rank : {0, 1}) {
    CHECK(ranks.finish(rank) ==
          "ranks diverged: rank 0 is in transfer #3 (20 B of float32, message 2) of activations 0 to 1, rank 1 in "
          "transfer #3 (20 B of float32, message 3) of activations 0 to 1\n");
    CHECK(ranks.code(rank) == 1);
  }
}

TEST_CASE("a message that nobody has received is reported at the end of a step, on all ranks",
          "[collective][channel]") {
  std::string backend = GENERATE("shm", "gloo");
  RankProcesses ranks(3, "message_left_out", {{"BACKEND", backend}});
  for (size_t rank : {0, 1, 2}) {
    CHECK(ranks.finish(rank) ==
          "ranks diverged: rank 2 is at transfer #3 (20 B of float32) of gradients 2 to 1, rank 1 at transfer #2 (20 B "
          "of float32)\n");
    CHECK(ranks.code(rank) == 1);
  }
}
