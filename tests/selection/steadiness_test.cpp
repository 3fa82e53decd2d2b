// Measurements on simulated machines with other load: settled results are right, and wrong results do not settle.
#include "runner/selection/calibration.hpp"

#include <fmt/format.h>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <functional>
#include <random>

using namespace runner;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr size_t measurements = 60;
constexpr int turns_least = 3, turns_most = 8;

double true_seconds(size_t measurement) { return 1e-3 * static_cast<double>(1 + measurement); }

/// The effect of other load on a turn: its slowdown, and the share of its time that the kernel counts as lost.
struct Other {
  double slowdown = 1, lost = 0;
};

/// Repeats all measurements in turns until they settle, as `runner doctor --calibrate` does.
std::vector<std::vector<Turn>> measured(const std::function<Other(int turn, std::mt19937_64&)>& other) {
  std::mt19937_64 random(17);
  std::normal_distribution<double> noise(0, 0.01);
  std::vector<std::vector<Turn>> all(measurements);
  for (int turn = 0; turn < turns_most; ++turn)
    for (size_t i = 0; i < measurements; ++i) {
      if (turn >= turns_least && figure_of(all[i]).settled()) continue;
      const auto [slowdown, lost] = other(turn, random);
      all[i].push_back({true_seconds(i) * slowdown * (1 + std::abs(noise(random))), lost});
    }
  return all;
}

size_t settled(const std::vector<std::vector<Turn>>& all) {
  return static_cast<size_t>(
      std::count_if(all.begin(), all.end(), [](const auto& turns) { return figure_of(turns).settled(); }));
}

double worst_error(const std::vector<std::vector<Turn>>& all) {
  double worst = 0;
  for (size_t i = 0; i < all.size(); ++i)
    if (const Figure figure = figure_of(all[i]); figure.settled())
      worst = std::max(worst, std::abs(figure.seconds / true_seconds(i) - 1));
  return worst;
}

bool chance(std::mt19937_64& random, double probability) {
  return std::uniform_real_distribution<double>(0, 1)(random) < probability;
}

double between(std::mt19937_64& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

}  // namespace

TEST_CASE("a quiet machine settles in the fewest turns") {
  const auto all = measured([](int, auto&) { return Other{}; });
  CHECK(disturbance(all).empty());
  CHECK(settled(all) == measurements);
  CHECK(worst_error(all) < 0.03);
  for (const auto& turns : all) CHECK(turns.size() == turns_least);
}

TEST_CASE("measurements continue during bursts of other load, with and without kernel counts") {
  for (bool counted : {true, false}) {
    const auto all = measured([&](int, auto& random) {
      if (!chance(random, 0.4)) return Other{};
      const double slowdown = between(random, 1.1, 3);
      return Other{slowdown, counted ? 1 - 1 / slowdown : 0};
    });
    INFO(disturbance(all));
    CHECK(disturbance(all).empty());
    CHECK(settled(all) > 0.9 * measurements);
    if (counted) CHECK(worst_error(all) < 0.05);
  }
}

TEST_CASE("with a second process that computes all the time no measurement settles") {
  const auto all = measured([](int, auto& random) {
    const double share = between(random, 0.3, 0.5);
    return Other{1 / (1 - share), share};
  });
  CHECK(settled(all) == 0);
  CHECK_THAT(disturbance(all),
             ContainsSubstring("60 of 60 measurements did not settle; other work took the CPUs for "));
}

TEST_CASE("10 % of time taken by a hypervisor is reported, 1 % does not disturb") {
  auto stealing = [](double share) { return measured([share](int, auto&) { return Other{1 / (1 - share), share}; }); };
  CHECK_THAT(disturbance(stealing(0.1)), ContainsSubstring("other work took the CPUs for 10 % of the time"));
  CHECK(disturbance(stealing(0.01)).empty());
  CHECK(worst_error(stealing(0.01)) < 0.05);
}

TEST_CASE("a machine that becomes slower is reported, a slight change does not disturb") {
  auto slowing = [](double each_turn) {
    return measured([each_turn](int turn, auto&) { return Other{1 + each_turn * turn}; });
  };
  CHECK_FALSE(disturbance(slowing(0.2)).empty());
  CHECK(disturbance(slowing(0.01)).empty());
  CHECK(worst_error(slowing(0.01)) < 0.03);
  const auto throttled = measured([](int turn, auto&) { return Other{turn < 2 ? 1.0 : 1.3}; });
  CHECK_THAT(disturbance(throttled), ContainsSubstring("% slower while it was measured"));
}

TEST_CASE("turns that differ without counted lost time do not settle") {
  const auto all = measured([](int turn, auto&) { return Other{1.0 + 0.1 * ((turn * 5) % 8)}; });
  CHECK(disturbance(all) ==
        "60 of 60 measurements did not settle; repeated measurements differ by more than the noise of a quiet machine");
}

TEST_CASE("one turn is not a measurement, and no turn is not either") {
  CHECK_FALSE(figure_of({}).settled());
  CHECK_FALSE(figure_of({{1, 0}}).settled());
  CHECK_FALSE(figure_of({{1, 0}, {1, 0.5}}).settled());
  CHECK(figure_of({{1.04, 0}, {9, 0}, {1, 0}}).seconds == 1);
  CHECK(disturbance({}) == "nothing was measured");
}

TEST_CASE("a few unsettled measurements do not disturb the others") {
  std::vector<std::vector<Turn>> all(20, {{1, 0}, {1, 0}, {1, 0}});
  all[0] = {{1, 0}, {2, 0}, {3, 0}};
  CHECK(disturbance(all).empty());
  all[1] = all[2] = all[0];
  CHECK_THAT(disturbance(all), ContainsSubstring("3 of 20 measurements did not settle"));
}
