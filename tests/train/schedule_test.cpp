// Learning-rate schedules at their corners.
#include "runner/train/schedule.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

using namespace runner;
using Catch::Matchers::WithinRel;

namespace {
Recipe::LrScheduler schedule(const std::string& name, int64_t warmup = 10) {
  Recipe::LrScheduler s;
  s.name = name;
  s.warmup_steps = warmup;
  s.min_lr_ratio = 0.1;
  return s;
}
}  // namespace

TEST_CASE("warm-up is linear and ends at the full rate") {
  for (const char* name : {"constant", "linear", "cosine", "wsd", "step"}) {
    CHECK_THAT(learning_rate(schedule(name), 1.0, 1, 100), WithinRel(0.1));
    CHECK_THAT(learning_rate(schedule(name), 1.0, 5, 100), WithinRel(0.5));
    CHECK_THAT(learning_rate(schedule(name), 1.0, 10, 100), WithinRel(1.0));
  }
}

TEST_CASE("each schedule ends where it says") {
  CHECK(learning_rate(schedule("constant"), 2.0, 100, 100) == 2.0);
  CHECK_THAT(learning_rate(schedule("linear"), 1.0, 55, 100), WithinRel(0.55));
  CHECK_THAT(learning_rate(schedule("linear"), 1.0, 100, 100), WithinRel(0.1));
  CHECK_THAT(learning_rate(schedule("cosine"), 1.0, 55, 100), WithinRel(0.55));
  CHECK_THAT(learning_rate(schedule("cosine"), 1.0, 100, 100), WithinRel(0.1));
  CHECK_THAT(learning_rate(schedule("wsd"), 1.0, 90, 100), WithinRel(1.0));
  CHECK_THAT(learning_rate(schedule("wsd"), 1.0, 95, 100), WithinRel(0.55));
  CHECK_THAT(learning_rate(schedule("wsd"), 1.0, 100, 100), WithinRel(0.1));
  CHECK_THAT(learning_rate(schedule("linear"), 1.0, 150, 100), WithinRel(0.1));  // past the end it stays
}

TEST_CASE("step falls by gamma every step_size steps after warm-up") {
  auto s = schedule("step", 2);
  s.step_size = 3;
  s.gamma = 0.5;
  CHECK(learning_rate(s, 1.0, 3, 0) == 1.0);
  CHECK(learning_rate(s, 1.0, 5, 0) == 1.0);
  CHECK(learning_rate(s, 1.0, 6, 0) == 0.5);
  CHECK(learning_rate(s, 1.0, 9, 0) == 0.25);
}
