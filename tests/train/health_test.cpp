// What counts as a loss spike and as a stalled step.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <mutex>
#include <random>

#include "runner/base/clock.hpp"
#include "runner/train/health_watch.hpp"
#include "tests/support/wait_until.hpp"

using namespace runner;

namespace {

/// A loss that falls, with noise.
double falling(int64_t step, std::mt19937& random) {
  return 2 + 6 * std::exp(-static_cast<double>(step) / 300) + std::normal_distribution<double>(0, 0.1)(random);
}

}  // namespace

TEST_CASE("a falling loss with noise has no spikes, and each jump is one") {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    LossWatch watch(10, 100);
    std::vector<int64_t> spikes;
    for (int64_t step = 0; step < 3000; ++step) {
      double loss = falling(step, random);
      if (step == 500 || (step >= 2000 && step < 2005)) loss *= 4;
      if (watch.take(loss)) spikes.push_back(step);
    }
    CHECK(spikes == std::vector<int64_t>{500, 2000});
  }
}

TEST_CASE("a spike has the median that was expected") {
  LossWatch watch(10, 100);
  for (const double loss : {3.0, 3.1, 2.9, 3.0, 3.2, 2.8, 3.0, 3.0, 3.1}) CHECK_FALSE(watch.take(loss));
  CHECK_FALSE(watch.take(std::nan("")));
  CHECK_FALSE(watch.take(INFINITY));
  const auto spike = watch.take(7);
  REQUIRE(spike);
  CHECK(spike->expected == 3.0);
  // |deviations| of the nine from 3.0: 0 (four times), 0.1 (three times), 0.2 (twice); the median is 0.1.
  CHECK(std::abs(spike->deviations - 4 / (1.4826 * 0.1)) < 1e-6);
}

TEST_CASE("losses that hardly vary need a rise of a tenth") {
  LossWatch watch(10, 100);
  for (int i = 0; i < 50; ++i) CHECK_FALSE(watch.take(1.0));
  CHECK_FALSE(watch.take(1.05));
  CHECK(watch.take(1.2));
  CHECK_FALSE(watch.take(1.3));  // it is still up
  CHECK_FALSE(watch.take(1.0));
  CHECK(watch.take(1.2));
}

TEST_CASE("a watch that continues from a checkpoint finds the same spikes; 0 deviations turn it off") {
  std::mt19937 random(1);
  LossWatch watch(10, 40);
  for (int64_t step = 0; step < 100; ++step) watch.take(falling(step, random));
  LossWatch resumed(10, 40), off(0, 40);
  resumed.restore(nlohmann::json::parse(watch.state().dump()));
  for (int64_t step = 100; step < 200; ++step) {
    const double loss = falling(step, random) * (step == 110 || step == 150 ? 5 : 1);
    const auto a = watch.take(loss), b = resumed.take(loss);
    REQUIRE(a.has_value() == b.has_value());
    CHECK(a.has_value() == (step == 110 || step == 150));
    if (a) CHECK(a->expected == b->expected);
    CHECK_FALSE(off.take(loss));
  }
  LossWatch(10, 40).restore(nlohmann::json::object());  // of an older checkpoint
}

TEST_CASE("a step that takes much longer than others is reported once, while it goes on") {
  std::mutex mutex;
  std::vector<StallWatch::Stall> stalls;
  StallWatch watch(
      {.factor = 5, .least = std::chrono::duration<double>(0.2), .look_every = std::chrono::milliseconds(5)},
      [&](const StallWatch::Stall& stall) {
        std::lock_guard lock(mutex);
        stalls.push_back(stall);
      });
  const auto count = [&] {
    std::lock_guard lock(mutex);
    return stalls.size();
  };
  for (int64_t step = 1; step <= 4; ++step) {
    watch.step_begins(step);
    watch.step_ends();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // a validation: nothing is in progress
  CHECK(count() == 0);
  watch.step_begins(5);
  REQUIRE(runner::testing::wait_until([&] { return count() == 1; }, 20));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  watch.step_ends();
  CHECK(count() == 1);
  CHECK(stalls[0].step == 5);
  CHECK(stalls[0].seconds >= 0.2);
  CHECK(stalls[0].expected < 0.1);
}
