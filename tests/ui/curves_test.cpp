// Reduced curves against what a simple loop over all points finds.
#include "runner/ledger/curves.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "runner/ledger/ledger.hpp"
#include "tests/ledger/support.hpp"

namespace runner {

namespace {

using Points = std::vector<std::pair<int64_t, double>>;

/// A ledger with one run that has these points of "loss", and "tokens" = 1000 * step.
struct OneCurve : LedgerFolder {
  explicit OneCurve(const Points& points) {
    Ledger ledger(home(), Ledger::Mode::write);
    const std::string id = ledger.begin_run(new_run(*this));
    std::vector<MetricPoint> list;
    for (const auto& [step, value] : points) {
      list.push_back({.name = "loss", .step = step, .value = value});
      list.push_back({.name = "tokens", .step = step, .value = 1000.0 * static_cast<double>(step)});
    }
    ledger.metrics(id, list);
    ledger.flush();
  }
  Curve read(const CurveRequest& request) const {
    auto database = raw();
    const auto range = curve_range(database, {1}, request);
    REQUIRE(range);
    auto curve = read_curve(database, 1, request, *range);
    REQUIRE(curve);
    return *curve;
  }
};

Points noisy(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> noise(0, 0.3);
  Points points;
  for (int64_t i = 0; i < count; ++i)
    points.emplace_back(10 + 3 * i, 5.0 / (1.0 + 0.01 * static_cast<double>(i)) + noise(random));
  points[static_cast<size_t>(count / 3)].second = 99;  // spikes of one point
  points[static_cast<size_t>(count / 2)].second = -99;
  return points;
}

}  // namespace

TEST_CASE("expectation 26: a reduced curve has the least and the greatest value of each column of pixels") {
  const Points points = noisy(5000, 1);
  const OneCurve ledger(points);
  for (const int64_t columns : {1, 7, 100, 333}) {
    const Curve curve = ledger.read({.metric = "loss", .columns = columns});
    CHECK(curve.points == 5000);
    CHECK_FALSE(curve.complete);
    CHECK(std::ssize(curve.x) <= 2 * columns + 2);
    CHECK(std::is_sorted(curve.x.begin(), curve.x.end()));
    const double low = 10, high = 10 + 3 * 4999.0;
    for (int64_t c = 0; c < columns; ++c) {
      double least = 1e9, greatest = -1e9, seen_least = 1e9, seen_greatest = -1e9;
      const auto of = [&](double x) {
        return std::min(columns - 1, static_cast<int64_t>((x - low) * (static_cast<double>(columns) / (high - low))));
      };
      for (const auto& [step, value] : points)
        if (of(static_cast<double>(step)) == c) least = std::min(least, value), greatest = std::max(greatest, value);
      for (size_t i = 0; i < curve.x.size(); ++i)
        if (of(curve.x[i]) == c)
          seen_least = std::min(seen_least, curve.y[i]), seen_greatest = std::max(seen_greatest, curve.y[i]);
      CHECK(seen_least == least);
      CHECK(seen_greatest == greatest);
    }
    CHECK(curve.x.front() == low);
    CHECK(curve.x.back() == high);
    CHECK(curve.y.back() == points.back().second);
  }
}

TEST_CASE("a range with few points is complete, and both its ends belong to it") {
  const Points points = noisy(2000, 2);
  const OneCurve ledger(points);
  const Curve curve = ledger.read({.metric = "loss", .from = 40, .to = 100, .columns = 50});
  CHECK(curve.complete);
  CHECK(curve.points == 21);
  CHECK(curve.x.front() == 40);
  CHECK(curve.x.back() == 100);
  for (size_t i = 0; i < curve.x.size(); ++i) CHECK(curve.y[i] == points[10 + i].second);
}

TEST_CASE("the nearest points on both sides of a range are known, also if the range has no point") {
  const OneCurve ledger({{20, 4}, {40, 2}, {60, 1}, {80, std::nan("")}});
  using Neighbour = std::optional<std::array<double, 3>>;
  for (const std::string x : {"step", "tokens"}) {
    const double unit = x == "step" ? 1 : 1000;
    const auto read = [&](double from, double to, double smoothing = 0) {
      return ledger.read({.metric = "loss", .x = x, .from = from * unit, .to = to * unit, .smoothing = smoothing});
    };
    const Curve between = read(25, 35);
    CHECK(between.x.empty());
    CHECK(between.points == 0);
    CHECK(between.before == Neighbour{{20 * unit, 4, 4}});
    CHECK(between.after == Neighbour{{40 * unit, 2, 2}});
    const Curve one = read(30, 50, 0.5);
    CHECK(one.x == std::vector<double>{40 * unit});
    CHECK(one.before == Neighbour{{20 * unit, 4, 4}});
    CHECK(one.after == Neighbour{{60 * unit, 1, (4 * 0.125 + 2 * 0.25 + 1 * 0.5) / 0.875}});
    const Curve whole = read(20, 60);
    CHECK(whole.complete);
    CHECK_FALSE(whole.before);
    CHECK_FALSE(whole.after);  // what follows has no place on the axis of values
  }
}

TEST_CASE("another metric as the x axis") {
  const OneCurve ledger(noisy(100, 3));
  const Curve curve = ledger.read({.metric = "loss", .x = "tokens", .columns = 200});
  CHECK(curve.complete);
  CHECK(curve.points == 100);
  CHECK(curve.x.front() == 10'000);
  CHECK(curve.x.back() == 307'000);
  auto database = ledger.raw();
  CHECK_FALSE(curve_range(database, {1}, {.metric = "loss", .x = "seconds"}));
}

TEST_CASE("points between those of the x metric are on the line between them, and those beyond its ends are counted") {
  const LedgerFolder folder;
  {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    const std::string id = ledger.begin_run(new_run(folder));
    std::vector<MetricPoint> list;
    for (int64_t step = 6; step <= 42; step += 6) list.push_back({.name = "val_loss", .step = step, .value = 1});
    for (const int64_t step : {8, 16, 24, 32, 40})
      list.push_back({.name = "tokens", .step = step, .value = 128.0 * static_cast<double>(step)});
    list.push_back({.name = "tokens", .step = 20, .value = std::nan("")});  // no place on the axis
    ledger.metrics(id, list);
    ledger.flush();
  }
  auto database = folder.raw();
  const CurveRequest request{.metric = "val_loss", .x = "tokens", .columns = 100};
  const auto curve = read_curve(database, 1, request, *curve_range(database, {1}, request));
  CHECK(curve->x == std::vector<double>{12 * 128, 18 * 128, 24 * 128, 30 * 128, 36 * 128});
  CHECK(curve->without_x == 2);  // steps 6 and 42
  CHECK_FALSE(curve->complete);
}

TEST_CASE("a reduced curve keeps the least and the greatest of many points with one x value") {
  const LedgerFolder folder;
  {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    const std::string id = ledger.begin_run(new_run(folder));
    std::vector<MetricPoint> list;
    for (int64_t step = 0; step < 9000; ++step) {
      list.push_back({.name = "loss",
                      .step = step,
                      .value = step % 3000 == 1000   ? 50.0
                               : step % 3000 == 2000 ? -50.0
                                                     : 1});
      list.push_back({.name = "epoch", .step = step, .value = static_cast<double>(step / 3000)});
    }
    ledger.metrics(id, list);
    ledger.flush();
  }
  auto database = folder.raw();
  const CurveRequest request{.metric = "loss", .x = "epoch", .columns = 800};
  const auto curve = read_curve(database, 1, request, *curve_range(database, {1}, request));
  CHECK(std::ranges::count(curve->y, 50) == 3);
  CHECK(std::ranges::count(curve->y, -50) == 3);
}

TEST_CASE("values that are not finite are marks, and do not end a curve") {
  Points points = noisy(300, 4);
  points[50].second = std::nan("");
  points[51].second = std::nan("");
  points[200].second = std::numeric_limits<double>::infinity();
  points[250].second = -std::numeric_limits<double>::infinity();
  const OneCurve ledger(points);
  const Curve curve = ledger.read({.metric = "loss", .columns = 1000});
  CHECK(curve.nonfinite == 4);
  CHECK(curve.nan_x == std::vector<double>{160, 163});
  CHECK(curve.infinity_x == std::vector<double>{610});
  CHECK(curve.minus_infinity_x == std::vector<double>{760});
  CHECK(curve.x.size() == 296);
  // One mark in each column is enough.
  CHECK(ledger.read({.metric = "loss", .columns = 2}).nan_x.size() == 1);
}

TEST_CASE("smoothing is TensorBoard's moving average over all points, also those before the range") {
  const Points points = noisy(1000, 5);
  const OneCurve ledger(points);
  const double weight = 0.9;
  const Curve curve = ledger.read({.metric = "loss", .from = 1000, .to = 2500, .columns = 20, .smoothing = weight});
  REQUIRE(curve.smooth_x.size() == 20);
  double average = 0, missing = 1;
  size_t next = 0;
  for (const auto& [step, value] : points) {
    average = weight * average + (1 - weight) * value;
    missing *= weight;
    if (next < curve.smooth_x.size() && static_cast<double>(step) == curve.smooth_x[next]) {
      CHECK_THAT(curve.smooth_y[next], Catch::Matchers::WithinRel(average / (1 - missing), 1e-12));
      ++next;
    }
  }
  CHECK(next == 20);
}

TEST_CASE("a small curve for a table has at most as many points as asked for, from the first step to the last") {
  const Points points = noisy(3000, 6);
  const OneCurve ledger(points);
  auto database = ledger.raw();
  const auto values = sample_curve(database, 1, metric_key(database, "loss"), 48);
  CHECK(values.size() == 48);
  CHECK(values.front() == points.front().second);
  CHECK(values.back() == points.back().second);
  CHECK(sample_curve(database, 1, metric_key(database, "no such metric"), 48).empty());
}

}  // namespace runner
