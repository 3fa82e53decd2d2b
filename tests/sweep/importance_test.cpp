// Importance: known shares of the variance, and no result without data. Classes of failures, as a table.
#include "runner/sweep/importance.hpp"

#include <catch2/catch_test_macros.hpp>

#include "problems.hpp"
#include "runner/base/error.hpp"
#include "runner/sweep/failure.hpp"
#include "runner/sweep/methods.hpp"

using namespace runner;
using namespace runner::sweep;
using namespace runner::testing;

TEST_CASE("a parameter's importance is the share of the variance that it explains alone") {
  Space space({real("x", 0, 1), choice("c", {"a", "b"}), real("unused", 0, 1), under(real("inner", 0, 1), "c", {"b"})});
  auto sobol = make_sobol(space, 1, true);
  std::vector<Observation> observations;
  for (int64_t i = 0; i < 512; ++i) {
    auto point = sobol->propose(i).trial.parameters;
    // Variances: 4 / 12 of x, 1 / 4 of c.
    observations.push_back({point, 2 * point.at("x").get<double>() + (point.at("c") == "b" ? 1 : 0)});
  }
  auto list = importance(space, observations);
  REQUIRE(list.size() == 4);
  CHECK(list[0].parameter == "x");
  CHECK(std::abs(list[0].share - 0.571 * 35 / 36) < 0.03);  // six bins explain 35/36 of a linear function
  double by_c = 0, by_unused = 1, by_inner = 0;
  for (const auto& one : list) {
    if (one.parameter == "c") by_c = one.share;
    if (one.parameter == "unused") by_unused = one.share;
    if (one.parameter == "inner") by_inner = one.share;
  }
  CHECK(std::abs(by_c - 0.429) < 0.03);
  CHECK(by_unused < 0.03);
  CHECK(by_inner >= by_c - 0.03);  // whether it is active depends on c
  observations.resize(7);
  try {
    importance(space, observations);
    FAIL("no refusal");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) == "importance needs 8 completed trials, and there are 7");
  }
}

TEST_CASE("each failure has one class") {
  struct Row {
    TrialExit exit;
    const char* expected;
  };
  for (const auto& [exit, expected] : std::vector<Row>{
           {{1, 0, "oom", "x"}, "out_of_memory"},
           {{1, 0, "crash", "rank 0 was killed by signal 9 (SIGKILL; out of memory killer?)"}, "out_of_memory"},
           {{1, 0, "nonfinite", "the loss is not finite"}, "nan"},
           {{2, 0, "", "s.toml:1:1: error"}, "user_error"},
           {{4, 0, "", "no CUDA device"}, "device"},
           {{1, 0, "error", "CUDA error: an illegal memory access"}, "device"},
           {{3, 0, "", ""}, "preempted"},
           {{1, 0, "crash", "rank 1 exited with code 7"}, "other"},
           {{0, 9, "", ""}, "other"},
           {{3, 0, "", "", true}, "timeout"}}) {
    INFO(exit.kind << " " << exit.message);
    CHECK(failure_class(exit) == expected);
  }
}
